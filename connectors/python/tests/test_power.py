"""Guarantee 4 for the Python writer: the power may fail at every call."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import headrace
import numpy as np
import pytest
from agent import Agent
from disk import TRIES, Disk
from headrace import _durable
from headrace import _manifest as manifest
from saving import Agents, stepped

Disks = Callable[[Agent], Disk]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "disk").mkdir()
    return tmp_path / "disk"


@pytest.fixture
def disk(tmp_path: Path, root: Path, rng: random.Random) -> Disks:
    """A disk that checks, at each power failure: every manifest belongs to a whole checkpoint, and
    every checkpoint that the master counts as bound is there."""

    def watched(agent: Agent) -> Disk:
        def look(when: str, left: Path) -> None:
            bad: list[str] = []
            found = [m for top, _, _ in os.walk(left) for m in manifest.find(top, bad) if m.folder == top]
            assert not bad
            assert [fault for m in found if (fault := manifest.verify(m))] == []
            there = {m.cut_id: str(root / os.path.relpath(m.path, left)) for m in found}
            lost = {cut: path for cut, path in agent.bound.items() if there.get(cut) != path}
            assert not lost, "bound, but not there after the power failure"

        return Disk(root, tmp_path / "crashes", rng, look)

    return watched


def test_power_loss_at_every_call_leaves_what_is_bound_and_nothing_half(
    agents: Agents, disk: Disks, root: Path
) -> None:
    """The calls of saves into folders that do not exist yet, and of removing old checkpoints."""
    agent = agents(model="private", total=300)
    with headrace.dataset("clicks").batches(10) as stream, disk(agent) as crashing:
        with headrace.Checkpointer(root / "new" / "a" / "b", stream, keep=2) as ck:
            for n in range(4):
                ck.save(stepped(stream, 1, np.zeros(1)), {"w": np.full(50, n)}).wait(300)
    assert crashing.crashes > 4 * 5 * TRIES
    assert len(agent.bound) == 2


def test_power_loss_at_every_call_of_a_sharded_save(agents: Agents, disk: Disks, root: Path) -> None:
    agent = agents(model="replicated")
    headrace.init(rank=0, world_size=1)
    with headrace.dataset("clicks").batches(10) as stream, disk(agent) as crashing:
        with headrace.Checkpointer(root / "new" / "a", stream, sharded=True) as ck:
            for n in range(2):
                ck.save(stepped(stream, 1, np.zeros(1)), {"w": np.full(50, n)}).wait(300)
    assert crashing.crashes > 2 * 5 * TRIES
    assert len(agent.bound) == 2


def test_power_loss_at_every_call_of_a_bind_of_what_a_framework_wrote(agents: Agents, disk: Disks, root: Path) -> None:
    agent = agents(model="replicated", total=300)
    with headrace.dataset("clicks").batches(10) as stream, disk(agent):
        with headrace.Checkpointer(root, stream) as ck:
            file = root / "new" / "a" / "model.bin"
            file.parent.mkdir(parents=True)
            file.write_bytes(b"weights" * 100)
            ck.bind(ck.cut(stepped(stream, 1, np.zeros(1))), file)
            folder = root / "newer" / "b" / "dcp"
            (folder / "shards" / "deep").mkdir(parents=True)
            (folder / "shards" / "deep" / "0.distcp").write_bytes(b"0" * 500)
            (folder / ".metadata").write_bytes(b"m" * 500)
            ck.bind(ck.cut(stepped(stream, 1, np.zeros(1))), folder)
    assert len(agent.bound) == 2


def test_folders_that_a_killed_process_made_are_durable_with_the_next_checkpoint(
    agents: Agents, disk: Disks, root: Path
) -> None:
    agent = agents(model="private")
    with headrace.dataset("clicks").batches(10) as stream, disk(agent):
        (root / "new" / "a" / "b").mkdir(parents=True)
        with headrace.Checkpointer(root / "new" / "a" / "b", stream) as ck:
            ck.save(stepped(stream, 1, np.zeros(1)), {"w": np.ones(1)}).wait(300)
    assert len(agent.bound) == 1


def test_a_folder_above_that_this_user_may_not_open_hinders_no_save(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, closed = _durable.sync, root.parent

    def sync(path: str) -> None:
        if path == str(closed):
            raise PermissionError(13, "Permission denied", path)
        real(path)

    monkeypatch.setattr(_durable, "sync", sync)
    _durable.make_folder(str(root / "new" / "a"))
    closed = root
    with pytest.raises(PermissionError):  # a folder made in it would not survive a power failure
        _durable.make_folder(str(root / "other" / "a"))


def test_the_disk_forgets_what_was_not_synced(root: Path, tmp_path: Path, rng: random.Random) -> None:
    seen: list[dict[str, bytes]] = []

    def look(when: str, left: Path) -> None:
        seen.append({str(p.relative_to(left)): p.read_bytes() for p in left.rglob("*") if p.is_file()})

    with Disk(root, tmp_path / "crashes", rng, look) as disk:
        (root / "a").write_bytes(b"one")
        disk.power_fails("with nothing synced")
        nothing = seen[-TRIES]
        _durable.sync(str(root))
        disk.power_fails("with the name synced")
        name = seen[-TRIES]
        _durable.sync(str(root / "a"))
        disk.power_fails("with both synced")
        both = seen[-TRIES:]
        os.rename(root / "a", root / "b")
    assert nothing == {}
    assert name == {"a": b""}
    assert both == [{"a": b"one"}] * TRIES
    assert seen[-TRIES] == {"a": b"one"}
