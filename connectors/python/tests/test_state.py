"""A saved state comes back as it was at the save. Later changes are not in it."""

from __future__ import annotations

import collections
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from headrace import _state
from safetensors.numpy import load_file


def through(state: Any, folder: Path) -> Any:
    captured = _state.capture(state)
    path = str(folder / "state.safetensors") if captured.arrays else None
    if path:
        _state.write(captured.arrays, path, {})
    return _state.read(captured.tree, [(path, "")] if path else [])


def same(a: Any, b: Any) -> bool:
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, float) and math.isnan(a):
        return math.isnan(b)
    return bool(a == b)


def anything(rng: random.Random, depth: int = 0) -> Any:
    kind = rng.randrange(10 if depth < 3 else 7)
    if kind < 3:
        dtype = rng.choice(["bool", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"])
        shape = tuple(rng.randrange(4) for _ in range(rng.randrange(4)))
        array = np.array(rng.choices(range(2), k=math.prod(shape)), dtype).reshape(shape)
        return array[()] if not shape else array.T if rng.random() < 0.3 else array
    if kind == 3:
        return rng.choice([0, -1, 2**53, -(2**53), 2**70, -(2**63), True, False, None])
    if kind == 4:
        return rng.choice([0.1, -0.0, 1e308, 5e-324, math.inf, -math.inf, math.nan])
    if kind == 5:
        return rng.choice(["", "täxt", "a.b", "\x00", "__metadata__"])
    if kind == 6:
        return rng.randbytes(rng.randrange(5)) if hasattr(rng, "randbytes") else b"\x00\xff"
    many = range(rng.randrange(4))
    if kind == 7:
        keys = ["a", "b", "a.b", "__metadata__", 0, 7, -1]
        rng.shuffle(keys)
        return {keys[i]: anything(rng, depth + 1) for i in many}
    values = [anything(rng, depth + 1) for _ in many]
    return values if kind == 8 else tuple(values)


def test_whatever_is_saved_comes_back(tmp_path: Path, rng: random.Random) -> None:
    for n in range(300):
        state = anything(rng)
        (tmp_path / str(n)).mkdir()
        assert same(through(state, tmp_path / str(n)), state), state


def test_changes_after_the_capture_are_not_in_it(tmp_path: Path) -> None:
    w, nested = np.zeros(3), {"l": [1]}
    captured = _state.capture({"w": w, "n": nested})
    w += 1
    nested["l"].append(2)
    path = str(tmp_path / "s")
    _state.write(captured.arrays, path, {})
    assert same(_state.read(captured.tree, [(path, "")]), {"w": np.zeros(3), "n": {"l": [1]}})


def test_any_reader_of_safetensors_finds_the_arrays_under_their_own_names(tmp_path: Path) -> None:
    state = {"weight": np.arange(6.0).reshape(2, 3), "layers": [{"bias": np.ones(2, np.float32)}], "step": 3}
    _state.write(_state.capture(state).arrays, str(tmp_path / "s"), {"step": "3"})
    assert sorted(load_file(str(tmp_path / "s"))) == ["layers.0.bias", "weight"]


def test_one_array_in_two_places_is_stored_once_and_is_one_again(tmp_path: Path) -> None:
    w = np.arange(4.0)
    back = through({"encoder": w, "decoder": w, "view": w[:2]}, tmp_path)
    assert back["encoder"] is back["decoder"]
    assert len(load_file(str(tmp_path / "state.safetensors"))) == 2


def test_empty_arrays_whose_places_are_written_alike_are_two(tmp_path: Path) -> None:
    state = {"a.b": np.zeros((3, 0)), "a": {"b": np.zeros((0, 2), np.float16)}, 0: np.zeros(0), "0": np.zeros(0, "i1")}
    assert same(through(state, tmp_path), state)


@pytest.mark.parametrize("options", [{"pickles": frozenset({"a.b"})}, {"tables": {"a.b": lambda _: None}}])
def test_an_option_whose_place_is_there_twice_is_refused(options: dict[str, Any]) -> None:
    state = {"a.b": np.zeros(3), "a": {"b": np.ones(3)}}
    with pytest.raises(TypeError, match=r"'a\.b' is there twice"):
        _state.capture(state, **options)


def test_an_ordered_dict_comes_back_in_its_order(tmp_path: Path) -> None:
    state = collections.OrderedDict(b=np.ones(1), a=np.zeros(1))
    assert list(through(state, tmp_path)) == ["b", "a"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"opt": {"f": print}}, r"'opt\.f' is a builtins\.builtin_function_or_method"),
        ({"x": np.array(["a"])}, "'x' is an array of <U1"),
        ({"x": [np.zeros(1, np.complex128)]}, r"'x\.0' is an array of complex128"),
        ({"x": np.zeros(1, object)}, "array of object"),
        ({"x": np.ma.array([1, 2], mask=[0, 1])}, "'x' is a masked array"),
        ({1.5: 0}, "the state has the key 1.5"),
        ({True: 0}, "the key True"),
        (collections.namedtuple("Point", "x")(1), "the state is a Point"),
        ({"s": {1, 2}}, "'s' is a builtins.set"),
    ],
)
def test_what_cannot_be_saved_is_named_with_its_place(state: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        _state.capture(state)


def test_a_state_that_contains_itself_is_refused() -> None:
    state: dict[str, Any] = {}
    state["me"] = [state]
    with pytest.raises(TypeError, match=r"'me\.0' contains itself"):
        _state.capture(state)


def test_a_tree_that_no_save_has_written_is_refused() -> None:
    for tree in ({}, {"array": "x", "of": "numpy"}, {"dict": [1]}, {"call": "os.system"}, {"int": "x"}, {"list": 3}):
        with pytest.raises(_state.CheckpointError):
            _state.read(tree, [])
