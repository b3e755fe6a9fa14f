"""No room for a checkpoint: the save says so, training goes on, no partial checkpoint counts,
and the next save works once there is room. A disk that is full for the data file itself:
tests/integration/test_full_disk_real.py."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _durable, _state
from headrace import _manifest as manifest
from saving import Agents, calls, stepped

needs_full = pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device that is always full is Linux's")


class Disk:
    """Has no room for one kind of call, named by `full`. Writing to /dev/full fails as on a full disk."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch, self.full = monkeypatch, ""
        self.real: dict[str, Any] = {name: getattr(os, name) for name in ("mkdir", "rename", "fsync")}
        for name in self.real:
            monkeypatch.setattr(os, name, self.call(name))
        make = _durable.make_folder

        def make_folder(folder: str) -> None:
            make(folder)
            if self.full == "manifest":
                cut = folder[-16:]
                os.symlink("/dev/full", os.path.join(folder, f".{manifest.FILE_NAME}.{cut}.tmp"))

        monkeypatch.setattr(_durable, "make_folder", make_folder)

    def call(self, name: str) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            if self.full == name:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), *(a for a in args if isinstance(a, str)))
            return self.real[name](*args, **more)

        return call


@needs_full
@pytest.mark.parametrize("where", ["mkdir", "fsync", "manifest", "rename"])
def test_a_save_without_room_says_so_and_the_next_one_works(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    agent = agents(model="private", total=300)
    disk = Disk(monkeypatch)
    weights = np.ones(1000)
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        old = ck.save(stepped(stream, 1, np.zeros(1)), {"w": weights}).wait(300)
        disk.full = where
        failed = ck.save(stepped(stream, 1, np.zeros(1)), {"w": weights})
        with pytest.raises((headrace.CheckpointError, OSError), match="No space left on device") as told:
            failed.wait(300)
        assert str(tmp_path) in str(told.value)
        if where in ("manifest", "rename"):
            need = os.path.getsize(os.path.join(old, manifest.FILE_NAME)) - 100
            found = [int(w.strip("(;")) for w in str(told.value).split() if w.strip("(;").isdigit()]
            assert found[0] >= need, told.value
            assert "bytes" in str(told.value)
        assert [m.folder for m in manifest.find(str(tmp_path))] == [old]
        assert os.listdir(tmp_path) == [os.path.basename(old)]
        assert list(agent.bound.values()) == [os.path.join(old, manifest.FILE_NAME)]
        step = stepped(stream, 1, np.zeros(1))  # training goes on
        disk.full = ""
        new = ck.save(step, {"w": weights}).wait(300)
        restored = ck.restore()
        assert restored is not None
        assert (restored.path, restored.step) == (new, 3)
    assert calls(agent) == ["ask", "bind", "ask", "drop", "ask", "bind", "restore"]


def test_a_bind_without_room_leaves_the_frameworks_files_alone(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = agents(model="replicated")
    disk = Disk(monkeypatch)
    file = tmp_path / "model.bin"
    file.write_bytes(b"weights")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        cut = ck.cut(stepped(stream, 1, np.zeros(1)))
        disk.full = "rename"
        with pytest.raises(headrace.CheckpointError, match=f"{file}.*No space left on device"):
            ck.bind(cut, file)
        assert os.listdir(tmp_path) == ["model.bin"]
        assert not agent.bound
        disk.full = ""
        assert agent.bound == {cut.id: ck.bind(cut, file)}


@pytest.mark.parametrize("where", ["state", "manifest", "rename"])
def test_a_step_that_is_saved_again_without_room_leaves_the_checkpoint_as_it_was(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A replicated step has one cut, and so one folder, however often it is saved."""
    agent = agents(model="replicated", total=300)
    disk = Disk(monkeypatch)
    write = _state.write

    def full(captured: Any, path: str, metadata: dict[str, str]) -> None:
        if disk.full == "state":
            Path(path).write_bytes(b"half of")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        write(captured, path, metadata)

    monkeypatch.setattr(_state, "write", full)
    shared: list[str] = []

    def one_cut(call: dict[str, Any]) -> dict[str, Any] | None:
        if call["call"] != "ask":
            return None
        shared.append(call["cut"])
        return {"cut": shared[0], "step": call["step"], "body": agent.body(shared[0], call["step"])}

    agent.answer = one_cut
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream, keep=1) as ck:
        step = stepped(stream, 1, np.zeros(1))
        old = ck.save(step, {"w": np.zeros(1000)}).wait(300)
        before = {p.name: p.read_bytes() for p in Path(old).iterdir()}
        disk.full = where
        with pytest.raises((headrace.CheckpointError, OSError), match="No space left on device"):
            ck.save(step, {"w": np.ones(2000)}).wait(300)
        disk.full = ""
        left = {p.name: p.read_bytes() for p in Path(old).iterdir() if not p.is_symlink()}
        assert left == before
        assert calls(agent) == ["ask", "bind", "ask"]  # no drop: the checkpoint before has the same cut
        assert ck.save(step, {"w": np.ones(2000)}).wait(300) == old
        assert len(os.listdir(old)) == 2
        restored = ck.restore()
        assert restored is not None
        assert np.array_equal(restored.state["w"], np.ones(2000))


@needs_full
def test_a_full_disk_keeps_no_old_checkpoint_from_being_removed(agents: Agents, tmp_path: Path) -> None:
    agent = agents(model="private", total=300)
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream, keep=1) as ck:
        old = ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300)
        os.symlink("/dev/full", os.path.join(old, manifest.FILE_NAME + ".removing"))  # the mark of the removal
        new = ck.save(stepped(stream, 1, np.zeros(1)), {}).wait(300)
        ck.close()
        agent.wait(lambda: len(agent.bound) == 1)
    assert os.listdir(tmp_path) == [os.path.basename(new)]
