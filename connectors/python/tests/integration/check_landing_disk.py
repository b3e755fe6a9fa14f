"""Pushed records on a real disk that is full, with a real trainer: an acknowledged record is not
lost, pushers are told why they wait, and each transaction lands once when there is room."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import headrace
import pytest
from test_push import TRAINER, numbers, rows, start, start_agent, start_master, state

__all__ = ["state"]  # a fixture

# On a busy machine each of many steps may take long. If pytest ended the test, its file system would
# stay mounted.
pytestmark = pytest.mark.timeout(1800)
NO_ROOM = "no space left on device"


class Disk:
    """A small file system. Mounting it needs root."""

    def __init__(self, kind: str, at: Path, mib: int) -> None:
        if os.getuid() != 0:
            pytest.fail("this test mounts a file system: run it as root", pytrace=False)
        at.mkdir(parents=True, mode=0o700)
        self.at, self.image, self.ballast = at, at.with_suffix(".image"), at / "ballast"
        if kind == "ext4":
            with self.image.open("wb") as f:
                f.truncate(mib << 20)
            subprocess.run(["mkfs.ext4", "-q", "-m", "0", self.image], check=True)
            subprocess.run(["mount", "-o", "loop", self.image, at], check=True)
            shutil.rmtree(at / "lost+found", ignore_errors=True)
        else:
            subprocess.run(["mount", "-t", kind, "-o", f"size={mib}m,mode=700", "none", at], check=True)

    def fill(self, leave: int = 0) -> None:
        """Fills the disk until only `leave` bytes are free."""
        with self.ballast.open("wb", buffering=0) as f:
            for piece in (1 << 20, 1 << 12, 1 << 10):
                with contextlib.suppress(OSError):
                    while True:
                        f.write(b"x" * piece)
                        os.fsync(f.fileno())
            if leave:
                f.truncate(max(0, f.tell() - leave))

    def free(self) -> None:
        self.ballast.unlink()

    def close(self) -> None:
        subprocess.run(["umount", "--lazy", self.at], check=True)
        self.image.unlink(missing_ok=True)


@pytest.fixture
def disk(job: Any, request: pytest.FixtureRequest) -> Iterator[Disk]:
    kind, below = request.param
    disk = Disk(kind, Path(job.env["HEADRACE_STATE"]) / below, 48)
    try:
        yield disk
        headrace.shutdown()
    finally:
        try:
            job.stop()
        finally:
            disk.close()


def in_thread(do: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(do()), daemon=True)
    thread.start()
    return thread, got


def until(job: Any, what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not what():
        assert time.monotonic() < deadline, job.logs()
        time.sleep(0.01)


@pytest.mark.parametrize("disk", [("ext4", "landing"), ("tmpfs", "landing")], indirect=True, ids=["ext4", "tmpfs"])
def test_chunks_wait_for_room_on_their_disk(job: Any, disk: Disk) -> None:
    """Only chunks are on the full disk, so the master goes on."""
    start(job)
    start_agent(job)
    trainer = job.trainer(TRAINER)
    headrace.push("clicks", rows(0, 100), transaction="before")
    disk.fill()
    told: dict[str, list[str]] = {"one call": [], "two calls": []}

    def one() -> headrace.Pushed:
        return headrace.push("clicks", rows(100, 200), transaction="one call", on_wait=told["one call"].append)

    def two() -> headrace.Pushed:
        with headrace.Pusher("clicks", on_wait=told["two calls"].append) as pusher:
            t = pusher.begin("two calls")
            for row in rows(200, 300):
                t.push(row)
            return pusher.commit("two calls", t.stage())

    lines = job.folder / "rows.jsonl"
    lines.write_text("".join(f'{{"user": "a", "number": {i}}}\n' for i in range(300, 400)))
    tool = job.start("push", "clicks", str(lines), "--transaction", "tool")
    (said,) = job.folder.glob("push-*.log")
    pushers = [in_thread(one), in_thread(two)]
    until(job, lambda: all(told.values()))
    until(job, lambda: NO_ROOM in said.read_text())  # the tool says it after two seconds
    for reasons in told.values():
        assert all("a chunk could not be stored" in r and NO_ROOM in r for r in reasons), reasons
    with pytest.raises(headrace.MasterUnavailable, match=NO_ROOM):
        headrace.push("clicks", rows(0, 1), transaction="no patience", patience=0)
    with headrace.Pusher("clicks") as pusher:
        assert [pusher.landed(name) for name in (*told, "tool", "no patience")] == [None] * 4
        assert pusher.landed("before") is not None
        disk.free()
        for thread, done in pushers:
            thread.join(120)
            assert [(d.already, d.records) for d in done] == [(False, 100)], job.logs()
        assert tool.wait(300) == 0, job.logs()
        pusher.end()
    assert job.master.poll() is None
    assert sorted(numbers(trainer.ended())) == list(range(400))


def start_on_full_disk(job: Any) -> None:
    """Starts a master. It may end at once, because it cannot write its store."""
    address = Path(job.env["HEADRACE_STATE"]) / "master.addr"
    address.unlink(missing_ok=True)
    job.master = job.start("master", "--listen", "127.0.0.1:0", "--http", "off", "--session-ttl", "20s")
    until(job, lambda: address.exists() or job.master.poll() is not None)


def restart_until_ended(job: Any, thread: threading.Thread, seen: int) -> int:
    """Waits for a thread that pushes. Meanwhile it starts the master again each time it has ended for
    lack of room, which can still happen a while after there is room. Returns how often that was."""
    ended, deadline = 0, time.monotonic() + 120
    while thread.is_alive() and time.monotonic() < deadline:
        if job.master.poll() is not None:
            ended += 1
            assert job.logs().count(NO_ROOM) > seen, job.logs()
            start_master(job)
        thread.join(0.01)
    return ended


@pytest.mark.parametrize("disk", [("ext4", ""), ("tmpfs", "")], indirect=True, ids=["ext4", "tmpfs"])
def test_a_transaction_lands_once_although_the_disk_fills_at_any_step(job: Any, disk: Disk) -> None:
    """Chunks, the store and everything else are on one disk. There is room for only some steps of a
    transaction, for a little more each time. Every second time the master is killed, and started
    again before there is room."""
    start(job)
    start_agent(job)
    trainer = job.trainer(TRAINER)
    steps, pushed, through, ended = (0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 24, 24, 32, 32, 64, 64), 0, 0, 0
    for n, kib in enumerate(steps):
        told: list[str] = []
        name, data = f"t{n}", rows(pushed, pushed + 100)
        seen = job.logs().count(NO_ROOM)
        disk.fill(leave=kib << 10)

        def push(name: str = name, data: Any = data, told: list[str] = told) -> headrace.Pushed:
            return headrace.push("clicks", data, transaction=name, on_wait=told.append)

        thread, done = in_thread(push)
        until(job, lambda: done or job.master.poll() is not None or any(NO_ROOM in r for r in told))  # noqa: B023
        through += bool(done)
        if n % 2:
            job.master.kill()
            job.master.wait()
            start_on_full_disk(job)
        disk.free()
        ended += restart_until_ended(job, thread, seen)
        assert [d.records for d in done] == [100], f"{kib} KiB" + job.logs()
        thread, done = in_thread(push)
        ended += restart_until_ended(job, thread, seen)
        assert done == [headrace.Pushed(name, True, 100)], f"{kib} KiB" + job.logs()
        pushed += 100
    print(f"{len(steps)} transactions, {through} landed before there was room, the master ended {ended} times")

    def end() -> None:
        with headrace.Pusher("clicks") as pusher:
            pusher.end()

    thread, done = in_thread(end)
    restart_until_ended(job, thread, 0)
    assert done, job.logs()
    assert sorted(numbers(trainer.ended())) == list(range(pushed))


@pytest.mark.parametrize("disk", [("ext4", "store")], indirect=True, ids=["ext4"])
def test_transactions_land_once_although_the_store_cannot_be_written(job: Any, disk: Disk) -> None:
    """Only the store is on the full disk. Chunks are stored and commits fail, so the master ends. It is
    started again when there is room, and the pusher goes on by itself."""
    start(job)
    start_agent(job)
    trainer = job.trainer(TRAINER)
    spec, stop, done, told = (job.folder / "clicks.yaml").read_text(), threading.Event(), [], []

    def push() -> None:
        while not stop.is_set():
            data = rows(20 * len(done), 20 * len(done) + 20)
            done.append(headrace.push("clicks", data, transaction=f"t{len(done)}", on_wait=told.append))

    worker, _ = in_thread(push)
    for n in range(3):
        disk.fill()
        large = job.folder / "large.yaml"
        for i in range(1000):  # until the log of the store is full
            large.write_text(spec.replace("name: clicks", f"name: large-{n}-{i}") + "# " + "x" * 900_000 + "\n")
            job.headrace("dataset", "apply", "-f", str(large), check=False)
            if job.master.poll() is not None:
                break
        assert job.master.wait(300) != 0
        said = [line for line in job.logs().splitlines() if NO_ROOM in line]
        assert str(disk.at) in said[-1], said
        disk.free()
        start_master(job)
        at = len(done)
        until(job, lambda: len(done) > at + 1)  # noqa: B023
    stop.set()
    worker.join(120)
    assert not worker.is_alive(), job.logs()
    assert [d.records for d in done] == [20] * len(done)
    print(f"{len(done)} transactions, {sum(d.already for d in done)} of them had landed before the answer was lost")
    with headrace.Pusher("clicks") as pusher:
        assert pusher.landed("t0") == headrace.Pushed("t0", True, 20)
        pusher.end()
    assert sorted(numbers(trainer.ended())) == list(range(20 * len(done)))
