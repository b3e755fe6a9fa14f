"""A large .gz of one member, read through a master, an agent and two trainers that are all killed
twice: it is leased in pieces, and reading goes on in its middle. The variable MIB is its packed
size; 10240 needs 11 GB of disk."""

from __future__ import annotations

import os
import signal
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

MIB = int(os.environ.get("MIB", "256"))
LONG = 2 * 3600.0

SPEC = """
name: rows
files: {{root: {root}}}
decode:
  format: tsv
  columns:
    - {{name: id, path: 0, dtype: int64}}
    - {{name: of_id, path: 2, dtype: int64}}
"""

# The model counts how often it has seen each id. A trainer that is told to wait does so when it has
# seen a fifth of all records since its start; the test kills it there.
TRAINER = """
import os, sys, time
import headrace
import numpy as np

rows, every, waits, checkpoints = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "waits", sys.argv[4]
rank = headrace.init().rank
with headrace.dataset("rows").batches(512) as stream, headrace.Checkpointer(checkpoints, stream) as ck:
    restored = ck.restore()
    seen = restored.state["seen"].copy() if restored is not None else np.zeros(rows, np.uint8)
    step = restored.step if restored is not None else 0
    start = count = int(seen.sum())
    print("restored", start, flush=True)
    for b in stream:
        ids = b["id"]
        if not (b["of_id"] == ids * 7919 % 1000003).all():
            sys.exit(f"a record is not what was written: {ids} {b['of_id']}")
        np.add.at(seen, ids, 1)
        if count == start:
            print("first", int(ids[0]), flush=True)
        count += len(ids)
        step = stream.step(step + 1)
        if step % every == 0:
            saved = ck.save(step, {"seen": seen})
        if waits and count >= start + rows // 5:
            saved.wait()
            print("waits", count, flush=True)
            time.sleep(1 << 20)
    ck.save(step, {"seen": seen}).wait()
np.save(f"{checkpoints}/{rank}.npy", seen)
print("end", count, flush=True)
"""


def write(path: Path, mib: int) -> int:
    """Writes lines of 4 KB as one gzip member until the file has that size. Returns the number of lines.
    A line packs to three quarters. Most of it is packed once and copied, so 10 GB take a minute."""
    per, width = 1024, 4096
    letters = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)
    text = letters[np.random.default_rng(1).integers(0, 64, (per, width))]
    text[:, [10, -9]], text[:, -1] = ord("\t"), ord("\n")
    stored = [bytes([0, n, 0, 255 - n, 255]) + bytes(n) for n in (11, 9)]  # unpacked blocks of 11 and of 9 bytes
    pieces, places = [], []
    for line in text:
        pack = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
        body = pack.compress(line[11:-9].tobytes()) + pack.flush(zlib.Z_FULL_FLUSH)
        start = sum(map(len, pieces))
        places.append([start + 5, start + len(stored[0]) + len(body) + 5])
        pieces.append(stored[0] + body + stored[1])
    packed, (heads, tails) = np.frombuffer(b"".join(pieces), np.uint8).copy(), np.array(places).T
    rows, crc = 0, 0
    with path.open("wb") as out:
        size = out.write(b"\x1f\x8b\x08" + bytes(7))
        while size < mib << 20:
            ids = np.arange(rows, rows + per)
            for numbers, last, digits in ((ids, 9, 10), (ids * 7919 % 1000003, width - 2, 7)):
                for k in range(digits):
                    text[:, last - k] = ord("0") + numbers // 10**k % 10
            packed[heads[:, None] + np.arange(11)] = text[:, :11]
            packed[tails[:, None] + np.arange(9)] = text[:, -9:]
            crc = zlib.crc32(text, crc)
            size += out.write(packed)
            rows += per
        out.write(b"\x03\x00" + struct.pack("<II", crc, rows * width % 2**32))
    return rows


class Life:
    """One master, one agent and two trainers, each a process of its own, from their start to their kill."""

    def __init__(self, job: Any, rows: int, *waits: str) -> None:
        self.job, started = job, time.monotonic()
        address = Path(job.env["HEADRACE_STATE"]) / "master.addr"
        for left in (address, Path(job.socket)):
            left.unlink(missing_ok=True)
        flags = ("--listen", "127.0.0.1:0", "--http", "off", "--session-ttl", "20s", "--model", "private")
        self.master = job.start("master", *flags, "--allow-root", str(job.folder))
        self.trainers: list[Any] = []
        self.until(address.exists)
        self.agent = job.start("agent", "--name", "one", "--socket", job.socket, "--allow-root", str(job.folder))
        job.await_socket(self.agent)
        job.headrace("dataset", "apply", "-f", str(job.folder / "rows.yaml"))
        args = (str(rows), str(max(1, rows // 512 // 40)), *(waits or ("ends",)), str(job.folder / "checkpoints"))
        for rank in range(2):
            code = f"import os; os.environ.update(RANK='{rank}', LOCAL_RANK='{rank}', WORLD_SIZE='2')\n{TRAINER}"
            self.trainers.append(job.helper(code, *args))
        self.until(lambda: len(self.said("restored")) == 2)
        self.until(lambda: self.said("first"))
        self.report(f"restored {self.said('restored')}, the first batch after {time.monotonic() - started:.1f} s")

    def said(self, word: str) -> list[int]:
        """The numbers that trainers have printed after a word."""
        lines = [line.split() for t in self.trainers for line in t.log.read_text().splitlines(keepends=True)]
        return [int(line[1]) for line in lines if len(line) == 2 and line[0] == word]

    def until(self, what: Callable[[], object]) -> None:
        deadline = time.monotonic() + LONG
        while not what():
            assert self.master.poll() is None, self.job.logs()
            assert all(t.process.poll() in (None, 0) for t in self.trainers), self.job.logs()
            assert time.monotonic() < deadline, self.job.logs()
            time.sleep(0.02)

    def read(self, process: Any) -> int:
        """How many bytes the process has read so far."""
        return int(Path(f"/proc/{process.pid}/io").read_text().split()[1])

    def peak(self, process: Any) -> str:
        (line,) = [x for x in Path(f"/proc/{process.pid}/status").read_text().splitlines() if x.startswith("VmHWM")]
        return f"{int(line.split()[1]) >> 10} MiB"

    def report(self, what: str) -> None:
        for name, process in (("master", self.master), ("agent", self.agent)):
            what += f"; {name}: {self.read(process) / 2**20:.0f} MiB read, at most {self.peak(process)}"
        print(what, flush=True)

    def kill(self) -> None:
        for process in (self.agent, self.master, *(t.process for t in self.trainers)):
            process.send_signal(signal.SIGKILL)
            process.wait()


@pytest.mark.timeout(LONG)
def test_a_large_gz_is_leased_in_pieces_and_read_on_from_the_middle(job: Any) -> None:
    path = job.data / "large.tsv.gz"
    rows = write(path, MIB)
    size = path.stat().st_size
    print(f"{size} bytes, {rows} records", flush=True)
    (job.folder / "rows.yaml").write_text(SPEC.format(root=job.data))
    (job.folder / "checkpoints").mkdir()
    for _ in range(2):  # after each kill, the checkpoints have a fifth to two fifths more of the records
        life = Life(job, rows, "waits")
        life.until(lambda: life.said("waits"))  # noqa: B023
        life.report(f"killed at {life.said('waits')}")
        life.kill()
        points = [p for p in (Path(job.env["HEADRACE_STATE"]) / "cache" / "points").rglob("*") if p.is_file()]
        print(f"{len(points)} restart points, {sum(p.stat().st_blocks * 512 for p in points) / 2**20:.1f} MiB")
    life = Life(job, rows)
    left = 1 - sum(life.said("restored")) / rows
    life.until(lambda: all(t.process.poll() == 0 for t in life.trainers))
    life.report(f"at the end {life.said('end')}")
    # If the agent began at the start of the file, it would read all of it. It may read what is left,
    # and a little before each lease.
    assert life.read(life.agent) < (left + 0.2) * size + (64 << 20)
    seen = sum(np.load(job.folder / "checkpoints" / f"{rank}.npy").astype(int) for rank in range(2))
    assert np.array_equal(seen, np.ones(rows)), np.bincount(seen)
