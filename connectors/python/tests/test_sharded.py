"""Checkpoints of several ranks, against a scripted agent."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import headrace
import numpy as np
import pytest
from agent import poll
from headrace import _manifest as manifest
from headrace import _parts, _publish, _state
from headrace._durable import make_folder
from saving import Agents, calls


def part_of(rank: int, folder: str, cut: str, step: int, world: int) -> None:
    """Writes the part of another rank of a sharded save."""
    name = f"state-rank-{rank}.safetensors"
    captured = _state.capture({"w": np.full(2, rank)})
    _state.write(captured.arrays, os.path.join(folder, name), {})
    tree = {"format": _state.FORMAT, "version": _state.VERSION, "tree": captured.tree, "file": name}
    path = os.path.join(folder, manifest.part_name(rank))
    fields = {"format": manifest.PART_FORMAT, "version": 1, "cut": cut, "step": step, "rank": rank, "world_size": world}
    fields |= {"files": [_publish.describe(folder, name)], "state": tree}
    _publish.publish(_publish.prepare(path, cut, fields), path)


def test_a_sharded_checkpoint_is_there_when_all_parts_are(agents: Agents, tmp_path: Path) -> None:
    agents(model="replicated")
    headrace.init(rank=0, world_size=3)
    with headrace.dataset("clicks").batches(10, rounds=False) as stream:
        with headrace.Checkpointer(tmp_path, stream, sharded=True) as ck:
            next(stream)
            saved = ck.save(stream.step(4), {"w": np.full(2, 0)})
            poll(lambda: saved.cut and any(p.name == "part-0.json" for p in tmp_path.glob("*/*")))
            (folder,) = tmp_path.iterdir()
            part_of(1, str(folder), saved.cut, 4, 3)
            part_of(2, str(folder), "00000000000000aa", 4, 3)  # a part of another attempt does not count
            assert not (folder / manifest.FILE_NAME).exists()
            part_of(2, str(folder), saved.cut, 4, 3)
            assert saved.wait(300) == str(folder)
        restored = headrace.Checkpointer(tmp_path, stream).restore()
    assert restored is not None
    assert restored.shards == 3
    assert [restored.shard(rank)["w"].tolist() for rank in range(3)] == [[0, 0], [1, 1], [2, 2]]
    assert restored.state["w"].tolist() == [0, 0]
    assert [f["rank"] for f in restored.manifest.files] == [0, 1, 2]


def looks_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A save that looks for the files of other ranks comes to its deadline after two looks."""
    looks = _parts.looks
    monkeypatch.setattr(_parts, "looks", lambda ck, deadline: itertools.islice(looks(ck, deadline), 2))


def test_a_missing_part_means_that_there_is_never_a_manifest(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents(model="replicated")
    headrace.init(rank=0, world_size=3)
    with headrace.dataset("clicks").batches(10, rounds=False) as stream:
        ck = headrace.Checkpointer(tmp_path, stream, sharded=True)
        looks_twice(monkeypatch)
        next(stream)
        saved = ck.save(stream.step(4), {"w": np.ones(2)})
        with pytest.raises(headrace.CheckpointError, match="no part of ranks 1, 2 came within"):
            saved.wait(300)
    assert calls(agent) == ["ask", "drop"]
    assert manifest.find(str(tmp_path)) == []


def test_a_rank_that_does_not_save_follows_rank_0(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents(model="replicated")
    theirs = "00000000000000aa"  # rank 0's cut; ranks that ask for the same step get the same cut
    agent.answer = lambda call: {"cut": theirs, "step": 4, "body": agent.body(theirs, 4)}
    headrace.init(rank=1, world_size=2)
    with headrace.dataset("clicks").batches(10, rounds=False) as stream:
        ck = headrace.Checkpointer(tmp_path, stream)
        next(stream)
        saved = ck.save(stream.step(4), {"w": np.ones(2)})
        poll(lambda: saved.cut == theirs)
        assert not saved.done
        folder = tmp_path / manifest.folder_name(4, None, theirs)
        path = str(folder / manifest.FILE_NAME)
        make_folder(str(folder))
        _publish.publish(_publish.prepare(path, theirs, _publish.manifest_of(agent.body(theirs, 4), 4, [])), path)
        assert saved.wait(300) == str(folder)
        assert calls(agent) == ["ask"]
        looks_twice(monkeypatch)
        impatient = headrace.Checkpointer(tmp_path / "elsewhere", stream)
        with pytest.raises(headrace.CheckpointError, match="rank 0 did not write it within"):
            impatient.save(4, {}).wait(300)
