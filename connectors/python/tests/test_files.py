"""Model and optimizer in files of their own: what is in each, and one without the other."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _files, _restore
from headrace import _manifest as manifest
from safetensors.numpy import load_file
from saving import Agents, stepped

FILES = ["model", "optimizer"]


def state(step: int = 7) -> dict[str, Any]:
    tied = np.full(3, 5.0)
    return {
        "model": {"w": np.arange(6.0).reshape(2, 3), "layers": [{"b": np.ones(2, np.float32)}], "tied": tied},
        "optimizer": {"state": {0: {"m": np.full((2, 3), 0.5)}}, "of": tied, "lr": 0.1},
        "seen": np.arange(4),
        "step": step,
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def saved(agents: Agents, folder: Path, **options: Any) -> str:
    agents(model="private")
    with headrace.dataset("clicks").batches(1) as stream:
        with headrace.Checkpointer(folder, stream, files=FILES, **options) as ck:
            return ck.save(stepped(stream, 1, np.zeros(1)), state()).wait(300)


def test_each_file_has_its_parts_own_names(agents: Agents, tmp_path: Path) -> None:
    path = saved(agents, tmp_path)
    files = {name for name in os.listdir(path) if name.endswith(".safetensors")}
    assert files == {"model.safetensors", "optimizer.safetensors", "state.safetensors"}
    assert sorted(load_file(os.path.join(path, "model.safetensors"))) == ["layers.0.b", "tied", "w"]
    assert sorted(load_file(os.path.join(path, "optimizer.safetensors"))) == ["of", "state.0.m"]
    assert sorted(load_file(os.path.join(path, "state.safetensors"))) == ["seen"]
    assert same(headrace.load(path), state())


def test_one_file_is_loaded_without_the_other_even_if_the_other_is_lost(agents: Agents, tmp_path: Path) -> None:
    path = saved(agents, tmp_path)
    os.unlink(os.path.join(path, "optimizer.safetensors"))
    of = headrace.load(path, only=["model"])
    assert same(of, {key: value for key, value in state().items() if key != "optimizer"})
    assert set(headrace.load(path, only="model")) == {"model", "seen", "step"}
    with pytest.raises(headrace.CheckpointError, match=r"optimizer\.safetensors"):
        headrace.load(path)
    with pytest.raises(headrace.CheckpointError, match=r"'seen' has no file of its own; 'model', 'optimizer' has"):
        headrace.load(path, only=["seen"])
    with open(os.path.join(path, "model.safetensors"), "r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x99")
    with pytest.raises(headrace.CheckpointError, match=r"model\.safetensors: its checksum is"):
        headrace.load(path, only=["model"])


def test_a_place_that_is_no_container_is_refused(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    with headrace.dataset("clicks").batches(1) as stream:
        with pytest.raises(TypeError, match=r"files=\[3\]"):
            headrace.Checkpointer(tmp_path, stream, files=[3])  # type: ignore[list-item]
        with headrace.Checkpointer(tmp_path, stream, files=["model"]) as ck:
            step = stepped(stream, 1, np.zeros(1))
            with pytest.raises(TypeError, match="state 'model' is a ndarray: files= names dicts and lists"):
                ck.save(step, {"model": np.ones(3)})
            with pytest.raises(TypeError, match="files= names 'model', which is not in the state"):
                ck.save(step, {"other": {}})
            path = ck.save(step, {"model": {}}).wait(300)  # the model is still empty
    assert headrace.load(path) == {"model": {}}


def test_a_delta_of_a_table_in_a_file_of_its_own(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    table = np.zeros((500, 8))
    with headrace.dataset("clicks").batches(1) as stream:
        options: dict[str, Any] = {"files": ["model"], "deltas": ["model.table"]}
        with headrace.Checkpointer(tmp_path, stream, **options) as ck:
            ck.save(stepped(stream, 1, np.zeros(1)), {"model": {"table": table}, "n": np.ones(1)}).wait(300)
            table[[3, 9]] = 1
            ck.touch("model.table", [3, 9])
            path = ck.save(stepped(stream, 1, np.zeros(1)), {"model": {"table": table}, "n": np.ones(1)}).wait(300)
    m = manifest.load(os.path.join(path, manifest.FILE_NAME))
    assert len(m.needs) == 1
    assert _restore._verified(m) is None
    assert os.path.getsize(os.path.join(path, "model.safetensors")) < 1000
    assert same(headrace.load(path, only=["model"]), {"model": {"table": table}, "n": np.ones(1)})


def test_a_part_is_loaded_with_the_part_that_it_lies_in(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    state = {"model": {"w": np.ones(2), "table": {"rows": np.arange(3)}}, "optimizer": {"m": np.zeros(2)}}
    with headrace.dataset("clicks").batches(1) as stream:
        with headrace.Checkpointer(tmp_path, stream, files=[*FILES, "model.table"]) as ck:
            path = ck.save(stepped(stream, 1, np.zeros(1)), state).wait(300)
    assert same(headrace.load(path, only=["model.table"]), {"model": state["model"]})
    assert same(headrace.load(path, only=["model"]), {"model": {"w": np.ones(2)}})


def test_a_delta_is_loaded_without_the_optimizer_of_its_base(agents: Agents, tmp_path: Path) -> None:
    agents(model="private")
    table = np.zeros((500, 8))
    state = {"model": {"table": table}, "optimizer": {"m": np.ones(3)}}
    with headrace.dataset("clicks").batches(1) as stream:
        with headrace.Checkpointer(tmp_path, stream, files=FILES, deltas=["model.table"]) as ck:
            paths = [ck.save(stepped(stream, 1, np.zeros(1)), state).wait(300)]
            table[3] = 1
            ck.touch("model.table", [3])
            paths.append(ck.save(stepped(stream, 1, np.zeros(1)), state).wait(300))
    for path in paths:
        os.unlink(os.path.join(path, "optimizer.safetensors"))
    assert same(headrace.load(paths[1], only=["model"]), {"model": {"table": table}})
    with open(os.path.join(paths[0], "model.safetensors"), "r+b") as file:
        file.truncate(100)
    with pytest.raises(headrace.CheckpointError, match="it has 100 bytes"):
        headrace.load(paths[1], only=["model"])


def test_names_of_files_are_plain_and_no_two_are_the_same() -> None:
    given = _files.names({"a.b", "a/b", "a_b", "state", "ü"}, "state-rank-2")
    assert len(set(given.values())) == 5
    assert all(name.endswith("-rank-2.safetensors") or "rank-2" in name for name in given.values()), given
    assert "state-rank-2.safetensors" not in given.values()
    assert all(name.isascii() and "/" not in name for name in given.values())


def test_a_tree_loses_only_what_was_not_asked_for() -> None:
    tree = {"dict": [["a", {"list": [{"value": 1}, {"dict": [["b", {"value": 2}]]}]}], [{"int": "3"}, {"value": 4}]]}
    assert _files.beside(tree, frozenset({"a.1.b"})) == {
        "dict": [["a", {"list": [{"value": 1}, {"dict": []}]}], [{"int": "3"}, {"value": 4}]]
    }
    gone = _files.beside(tree, frozenset({"3", "a.0"}))
    assert gone == {"dict": [["a", {"list": [{"value": None}, {"dict": [["b", {"value": 2}]]}]}]]}
