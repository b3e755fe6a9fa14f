"""Objects in files of their own: an opt-in, and never loaded unless asked."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _manifest as manifest
from headrace import _pickled, _state
from saving import Agents, stepped

LOADED: list[int] = []


class Forest:
    """An object of arrays and settings, as scikit-learn has. LOADED tells when one is unpickled."""

    def __init__(self, trees: int) -> None:
        self.trees, self.values = trees, np.arange(trees)

    def __setstate__(self, state: dict[str, Any]) -> None:
        LOADED.append(1)
        self.__dict__.update(state)


def test_an_object_goes_into_a_file_of_its_own_and_is_loaded_only_when_asked(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    forest = Forest(7)
    with (
        headrace.dataset("clicks").batches(10) as stream,
        headrace.Checkpointer(tmp_path, stream, pickle=["m.0"]) as ck,
    ):
        saved = ck.save(stepped(stream, 1, np.zeros(1)), {"m": [forest, np.ones(3)], "lr": 0.1})
        forest.trees = 99  # a later change is not saved
        path = saved.wait(300)
    LOADED.clear()  # the test's own copies have filled it
    assert sorted(os.listdir(path)) == ["headrace-manifest.json", "state-m_0.pickle", "state.safetensors"]
    m = manifest.load(os.path.join(path, manifest.FILE_NAME))
    assert manifest.verify(m) is None
    assert m.fields["state"]["version"] == 2
    from headrace import _restore

    state = _restore._load(m, 0)
    assert not LOADED
    assert state["lr"] == 0.1
    assert np.array_equal(state["m"][1], np.ones(3))
    pickled = state["m"][0]
    assert isinstance(pickled, headrace.Pickled)
    assert pickled.place == "m.0"
    assert pickled.load().trees == 7
    assert LOADED == [1]


def test_a_pickle_that_was_changed_is_not_loaded(tmp_path: Path) -> None:
    LOADED.clear()
    entries, where = _pickled.write({"m": _pickled.dumps(Forest(3), "m")}, str(tmp_path), "state")
    one = _pickled.found(where, str(tmp_path), entries)["m"]
    data = bytearray(Path(one.path).read_bytes())
    data[len(data) // 2] ^= 1
    Path(one.path).write_bytes(data)
    with pytest.raises(headrace.CheckpointError, match="another size or checksum"):
        one.load()
    Path(one.path).unlink()
    with pytest.raises(headrace.CheckpointError, match="No such file"):
        one.load()
    assert not LOADED


def test_the_error_of_an_object_names_the_opt_in() -> None:
    with pytest.raises(
        TypeError, match=r"state 'm\.forest' is a .*Forest.*Checkpointer\(\.\.\., pickle=\['m\.forest'\]\)"
    ):
        _state.capture({"m": {"forest": Forest(1)}})


def test_a_place_that_is_not_there_and_what_cannot_be_pickled_are_refused() -> None:
    with pytest.raises(TypeError, match="pickle= names 'model', which is not in the state"):
        _state.capture({"w": np.zeros(1)}, frozenset(["model"]))
    with pytest.raises(TypeError, match=r"state 'f' is a function, which cannot be pickled"):
        _state.capture({"f": lambda: 0}, frozenset(["f"]))
    with pytest.raises(TypeError, match="it is a list of places"):
        _pickled.names([1])  # type: ignore[list-item]
    assert _pickled.names("model") == frozenset(["model"])


def test_a_state_without_pickles_is_as_it_was(agents: Agents, tmp_path: Path) -> None:
    """An older version of headrace still reads it."""
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        path = ck.save(stepped(stream, 1, np.zeros(1)), {"w": np.ones(3)}).wait(300)
    state = json.loads(Path(path, manifest.FILE_NAME).read_text())["state"]
    assert state["version"] == 1
    assert "pickles" not in state


def test_memory_refuses_it(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream, pytest.raises(ValueError, match="memory=True and pickle="):
        headrace.Checkpointer(tmp_path, stream, memory=True, pickle=["m"])


def test_a_state_names_only_files_of_its_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(headrace.CheckpointError, match="not one of its files"):
        _pickled.found({"m": "../elsewhere"}, str(tmp_path), [])
    assert dataclasses.is_dataclass(headrace.Pickled)
