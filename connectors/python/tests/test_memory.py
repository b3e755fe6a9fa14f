"""A rank's slots without an agent: copies, checksums, and what a restore compares."""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from headrace import _checksum, _copying, _image, _memory, _slots, _state
from headrace._manifest import crc64
from headrace._memory import Memory
from headrace._slots import Folder
from headrace._verified import Verified


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    root = tmp_path / "memory"
    root.mkdir(mode=0o700)
    monkeypatch.setenv(_slots.ROOT_VARIABLE, str(root))
    return Folder(str(tmp_path / "ckpt"), "default")


def seed() -> int:
    number = int(os.environ.get("HEADRACE_SEED") or random.randrange(1 << 32))
    print(f"HEADRACE_SEED={number}")
    return number


def written(memory: Memory, state: Any, number: int) -> str:
    """Writes a complete checkpoint into one of the slots. Returns the slot's path."""
    copy = memory.copy(_state.flatten(state))
    cut = {"id": f"{number:016x}", "order": number, "epoch": 1}
    fields = {"cut": cut, "step": number, "created": "", "state": {"tree": copy.tree}}
    about = {"version": 1, "path": f"/nowhere/{number}", "manifest": fields}
    memory.complete(copy, json.dumps(about).encode(), f"{number:016x}")
    return copy.slot.path


def test_a_checksum_of_parts_is_that_of_the_whole() -> None:
    dice = random.Random(seed())
    for _ in range(20):
        data = dice.randbytes(dice.randrange(1, 3 * _checksum.CHUNK // 100))
        at = dice.randrange(len(data) + 1)
        assert _checksum.combined(crc64(data[:at]), crc64(data[at:]), len(data) - at) == crc64(data)
    data = dice.randbytes(5 * _checksum.CHUNK + dice.randrange(1000))
    begin, end = dice.randrange(100), len(data) - dice.randrange(100)
    for threads in (1, 2, 3, 7):
        assert _checksum.of(data, begin, end, threads) == crc64(data[begin:end])
    assert _checksum.of(data, 10, 10, 2) == crc64(b"")


def test_a_checksum_that_is_given_up_ends() -> None:
    with pytest.raises(_checksum.Stopped):
        _checksum.of(bytes(10), 0, 10, 2, lambda: True)


def test_each_array_is_copied_to_its_place_by_any_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(seed())
    monkeypatch.setattr(_copying, "PART", 1000)
    for threads in (1, 2, 4):
        monkeypatch.setattr(_copying, "MOST", threads)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _, n=threads: range(n))
        state: dict[str, Any] = {"scalar": np.float64(7), "empty": np.zeros((3, 0), np.int8)}
        for i, size in enumerate(dice.integers(1, 3000, 40)):
            array = dice.integers(-99, 99, (int(size), 3)).astype(dice.choice(["i1", "f2", "i8", "f4"]))
            odd = (array.T, array[::2], np.asfortranarray(array), array.astype(array.dtype.newbyteorder(">")), array)
            state[f"a{i}"] = odd[i % len(odd)]
        flat = _state.flatten(state)
        layout = _image.Layout(flat)
        views = {n: np.full(a.shape, 55, a.dtype.newbyteorder("=")) for n, a in flat.arrays.items() if a.size}
        copy = _copying.Copy(views)
        copy.run(flat.arrays)
        for name, view in views.items():
            np.testing.assert_array_equal(view, flat.arrays[name])
        assert layout.shape == _image.shape(flat)


def test_an_error_of_a_copying_thread_is_raised() -> None:
    def run(job: int) -> None:
        if job == 3:
            raise KeyError(job)

    with pytest.raises(KeyError):
        _copying.each(list(range(10)), run, 4)
    assert not [t for t in threading.enumerate() if t.name == "headrace-copy"]


def test_nothing_is_copied_any_more_when_a_signal_ends_it() -> None:
    begun, rings_now, ended = threading.Event(), threading.Event(), threading.Event()

    def run(job: int) -> None:
        if threading.current_thread() is threading.main_thread():
            assert begun.wait(300)
            rings_now.set()
            signal.raise_signal(signal.SIGALRM)
        begun.set()
        assert rings_now.wait(300)  # by now each of the two threads has a job
        time.sleep(0.05)
        ended.set()

    def rings(number: int, frame: Any) -> None:
        raise InterruptedError("the alarm")

    before = signal.signal(signal.SIGALRM, rings)
    try:
        with pytest.raises(InterruptedError):
            _copying.each([1, 2], run, 2)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert ended.is_set()
    assert not [t for t in threading.enumerate() if t.name == "headrace-copy"]


def test_a_slot_that_was_compared_stays_as_it_was_until_the_restore(folder: Folder) -> None:
    writer = Memory(folder, 0, 2)
    old = {"w": np.arange(100_000.0)}
    written(writer, old, 1)
    (found,) = _memory.found(folder, 0)
    verified = Verified()
    verified.begin([found], all_=True)
    verified.wait()
    manifest = _memory.InMemory(found.path, found.fields, slot=found.slot, verified=verified)
    for number in (2, 3, 4):  # one of them would overwrite the slot if it were not pinned
        written(writer, {"w": np.full(100_000, -number)}, number)
    assert manifest.fault() is None
    tree, arrays = manifest.load()
    np.testing.assert_array_equal(_state.build(tree, arrays)["w"], old["w"])
    verified.close()
    np.testing.assert_array_equal(arrays["w"], old["w"])
    writer.close()


def test_only_the_newest_that_is_whole_is_compared_unless_a_group_needs_all(folder: Folder) -> None:
    writer = Memory(folder, 0, 3)
    paths = {number: written(writer, {"w": np.full(10_000, number)}, number) for number in (1, 2, 3)}
    writer.close()
    with open(paths[3], "r+b") as file:  # flip one bit of the newest
        file.seek(_slots.PAGE * 2 + 100)
        byte = file.read(1)[0]
        file.seek(_slots.PAGE * 2 + 100)
        file.write(bytes([byte ^ 1]))
    found = _memory.found(folder, 0)
    assert [m.step for m in found] == [3, 2, 1]
    for all_, pinned in ((False, [2]), (True, [2, 1])):
        verified = Verified()
        verified.begin(found, all_)
        verified.wait()
        free = Memory(folder, 0, 3)
        assert sorted(s for s, path in paths.items() if not locked(free, path)) == sorted(pinned)
        free.close()
        assert "checksum" in str(verified.fault(found[0]))
        assert verified.fault(found[2]) is None
        verified.close()
        free = Memory(folder, 0, 3)
        assert all(locked(free, path) for path in paths.values()), "a slot is still pinned"
        free.close()


def locked(memory: Memory, path: str) -> bool:
    """Whether the slot could be locked, and so written, now."""
    (slot,) = [s for s in memory._slots.values() if s.path == path]
    if not slot.lock():
        return False
    slot.unlock()
    return True


@pytest.mark.parametrize("room", [True, False])
def test_a_state_that_stays_in_use_costs_no_newer_checkpoint(
    folder: Folder, room: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program may keep the arrays that it has restored, and they stay in their slot. If it is killed in
    mid copy, the checkpoint before is left if there is room for a third slot, else the restored one."""
    killed = Memory(folder, 0, 2)
    for number in (1, 2):
        written(killed, {"w": np.full(10_000, number)}, number)
    killed.close()
    manifest = _memory.found(folder, 0)[0]
    arrays = manifest.load()[1]
    if not room:
        monkeypatch.setattr(_slots, "_affordable", no_room)
    memory = Memory(folder, 0, 2)
    for number in (3, 4, 5):
        assert (arrays["w"] == 2).all()
        if number == 5:  # the program lets go of what it has restored
            del arrays
        with pytest.raises(InterruptedError):
            memory.copy(_state.flatten({"w": np.full(10_000, -1)}), halfway=dies)
        newest = _memory.found(folder, 0)[0]
        assert newest.step == (2 if number == 4 and not room else number - 1)
        assert newest.fault() is None
        copy = memory.copy(_state.flatten({"w": np.full(10_000, number)}))
        about = {"version": 1, "path": "/nowhere", "manifest": {**newest.fields, "step": number}}
        about["manifest"]["cut"] = {"id": f"{number:016x}", "order": number, "epoch": 1}
        memory.complete(copy, json.dumps(about).encode(), f"{number:016x}")
    memory.close()
    assert not _memory._restored


def test_a_forked_process_that_has_the_restored_state_costs_no_newer_checkpoint(folder: Folder) -> None:
    """A worker of a DataLoader that was forked after the restore pins the slot for as long as it lives."""
    killed = Memory(folder, 0, 2)
    for number in (1, 2):
        written(killed, {"w": np.full(10_000, number)}, number)
    killed.close()
    arrays = _memory.found(folder, 0)[0].load()[1]
    ends, lives = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(lives)
        os.read(ends, 1)
        os._exit(0 if (arrays["w"] == 2).all() else 1)
    os.close(ends)
    del arrays
    memory = Memory(folder, 0, 2)
    for number in (3, 4, 5):
        with pytest.raises(InterruptedError):
            memory.copy(_state.flatten({"w": np.full(10_000, -1)}), halfway=dies)
        assert _memory.found(folder, 0)[0].step == number - 1
        written(memory, {"w": np.full(10_000, number)}, number)
    os.close(lives)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    memory.close()
    _memory._restored.clear()


def test_an_unfinished_slot_of_a_killed_process_is_removed_at_the_next_start(folder: Folder) -> None:
    left = Path(folder.slot(0, 1) + _memory.NEW)
    left.write_bytes(bytes(1000))
    Memory(folder, 0, 2).close()
    assert not left.exists()


def dies() -> None:
    raise InterruptedError


def no_room(path: str, more: int) -> None:
    raise OSError(errno.ENOSPC, "no memory is free", path)


def test_the_layout_of_the_first_save_is_ready_when_memory_is_warm(folder: Folder) -> None:
    memory = Memory(folder, 0, 2)
    flat = _state.flatten({"w": np.arange(100_000.0)})
    layout = _image.Layout(flat)
    memory.warm(_memory.size_of(layout.size), layout)
    memory.warmed()
    assert len(memory._layouts) == 2
    copies = {i: known[2] for i, known in memory._layouts.items()}
    for number in (1, 2):
        written(memory, {"w": np.arange(100_000.0) + number}, number)
    assert {i: known[2] for i, known in memory._layouts.items()} == copies
    for manifest in _memory.found(folder, 0):
        assert manifest.fault() is None
        np.testing.assert_array_equal(manifest.load()[1]["w"], np.arange(100_000.0) + manifest.step)
    memory.close()


def test_a_delayed_warm_up_of_memory_does_not_delay_the_end(folder: Folder) -> None:
    memory = Memory(folder, 0, 2)
    memory.warm(1 << 20, delay=3600)
    memory.close()


def test_a_slot_that_was_read_is_free_although_its_reader_still_lives(folder: Folder) -> None:
    memory = Memory(folder, 0, 2)
    path = written(memory, {"w": np.arange(9.0)}, 1)
    reading = _slots.Reading(path)
    assert not locked(memory, path)
    arrays = np.frombuffer(reading.memory, np.uint8)
    reading.close()
    assert locked(memory, path)
    assert arrays.size
    memory.close()


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(("inside", "cached", "fits"), [(True, 0, False), (True, 70, True), (False, 0, False)])
def test_memory_is_taken_as_the_cgroup_allows_and_files_that_were_read_are_no_used_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, inside: bool, cached: int, fits: bool
) -> None:
    """A job that has read many files has used all of its memory, as its cgroup counts. inside: of a container,
    which sees its own cgroup as the topmost one."""
    mib = 1 << 20
    top = tmp_path / ("sys/fs/cgroup/memory" if version == 1 else "sys/fs/cgroup")
    group = top if inside else top / "jobs" / "job_7"
    (group if inside else group / "step_0").mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    line = "4:cpu,memory:/jobs/job_7/step_0" if version == 1 else "0::/jobs/job_7/step_0"
    (tmp_path / "proc/self/cgroup").write_text(f"9:name=systemd:/\n{line}\n")
    limit, used, stat = _slots._GROUP_FILES[version]
    (group / limit).write_text(f"{100 * mib}\n")
    (group / used).write_text(f"{99 * mib}\n")
    (group / "memory.stat").write_text("anon 5\n" + "".join(f"{name} {cached * mib // 2}\n" for name in stat))
    monkeypatch.setattr(_slots, "_SYSTEM", str(tmp_path))
    fd = os.open(tmp_path / "slot", os.O_RDWR | os.O_CREAT)
    try:
        if fits:
            _slots.take_room(fd, "slot", 0, 60 * mib)
        else:
            with pytest.raises(OSError, match="only 1048576 bytes of memory are free"):
                _slots.take_room(fd, "slot", 0, 60 * mib)
    finally:
        os.close(fd)


def test_the_name_of_a_checkpoint_folder_is_on_the_disk_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power failure must not leave it empty: then no Checkpointer could begin any more."""
    synced: set[int] = set()
    sync, link = os.fsync, os.link

    def note(fd: int) -> None:
        sync(fd)
        if os.fstat(fd).st_size:
            synced.add(os.fstat(fd).st_ino)

    def linked(path: str, to: str) -> None:
        assert os.stat(path).st_ino in synced
        link(path, to)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "link", linked)
    name = _slots._folder_id(str(tmp_path))
    assert len(name) == 16
    assert _slots._folder_id(str(tmp_path)) == name


def test_checkpoints_in_memory_stay_while_the_mount_of_their_folder_is_away(folder: Folder, tmp_path: Path) -> None:
    """The folder may be the mount's own, which is there and empty then."""
    writer = Memory(folder, 0, 2)
    written(writer, {"w": np.arange(3.0)}, 1)
    writer.close()
    os.rename(tmp_path / "ckpt", tmp_path / "mounted")
    (tmp_path / "ckpt").mkdir()
    Folder(str(tmp_path / "another"), "default")
    assert len(_memory.found(folder, 0)) == 1
    os.utime(folder.path, (0, 0))  # nobody has used them for long
    Folder(str(tmp_path / "another"), "default")
    assert not os.path.exists(folder.path)
    again = Folder(str(tmp_path / "ckpt"), "default")  # it was made again
    os.rename(tmp_path / "ckpt" / _slots.ID_FILE, tmp_path / "ckpt" / "gone")
    (tmp_path / "ckpt" / _slots.ID_FILE).write_text("0123456789abcdef\n")
    Folder(str(tmp_path / "another"), "default")
    assert not os.path.exists(again.path)
