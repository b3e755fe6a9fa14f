"""Compressed files through `headrace up` and the Python stream. Every record comes once, also when
processes are killed in the middle of a file."""

from __future__ import annotations

import bz2
import gzip
import json
import os
import signal
import subprocess
import zlib
from pathlib import Path
from typing import Any

import pytest
from agent import poll

TRAIN = """
import headrace, os

with headrace.dataset("rows").batches(500) as stream, open(os.environ["IDS"], "w") as out:
    for b in stream:
        print(*b["id"].tolist(), file=out)
        stream.step()
"""

SPEC = """
name: rows
files: {{root: {root}}}
decode:
  format: csv
  header: true
  columns:
    - {{name: id, path: id, dtype: int64}}
    - {{name: text, path: text, dtype: string}}
lease: {{initial: 64KiB, min: 16KiB, max: 256KiB}}
"""


def csv(first: int, last: int) -> bytes:
    lines = (f'{i},"row {i}, which says\n{zlib.crc32(b"%d" % i):08x} twice: {i * 7}"\n' for i in range(first, last))
    return ("id,text\n" + "".join(lines)).encode()


def write(folder: Path, rows: int, how: list[str]) -> None:
    per = rows // len(how)
    for k, kind in enumerate(how):
        text = csv(k * per, (k + 1) * per)
        half = len(text) // 2
        if kind == "gz":
            (folder / f"{k}.csv.gz").write_bytes(gzip.compress(text, 6))
        elif kind == "gz of members":
            (folder / f"{k}.csv.gz").write_bytes(gzip.compress(text[:half], 1) + gzip.compress(text[half:], 9))
        elif kind == "bz2":
            (folder / f"{k}.csv.bz2").write_bytes(bz2.compress(text[:half], 1) + bz2.compress(text[half:], 9))
        else:
            (folder / f"{k}.csv").write_bytes(text)


def apply(job: Any) -> None:
    spec = job.folder / "rows.yaml"
    spec.write_text(SPEC.format(root=job.data))
    job.headrace("dataset", "apply", "-f", str(spec))


def ids(text: str) -> list[int]:
    return [int(word) for word in text.split()]


def test_compressed_files_are_read_once(job: Any) -> None:
    rows = 60_000
    write(job.data, rows, ["gz", "gz of members", "bz2", "plain"])
    job.up()
    apply(job)
    outs = [job.folder / f"ids-{k}" for k in range(2)]
    trainers = [
        job.trainer(TRAIN, IDS=str(out), HEADRACE_RANK=str(k), HEADRACE_WORLD_SIZE="2") for k, out in enumerate(outs)
    ]
    said = [t.ended() for t in trainers]
    got = sorted(i for out in outs for i in ids(out.read_text()))
    assert got == list(range(rows)), said
    shown = job.headrace("dataset", "peek", "rows", "-n", "1", "--columns", "text", "-o", "json").stdout
    assert "row 0, which says" in shown


def test_a_compressed_file_is_resumed_in_the_middle(job: Any) -> None:
    """With a `private` model: a checkpoint and what comes after it have each record exactly once."""
    rows = 80_000
    write(job.data, rows, ["gz", "gz of members"])
    up = job.up("--model", "private")
    apply(job)
    code = """
import headrace, sys

with headrace.dataset("rows").batches(500) as stream, headrace.Checkpointer(sys.argv[1], stream) as ck:
    restored = ck.restore()
    seen = restored.state["seen"].tolist() if restored is not None else []
    step = restored.step if restored is not None else 0
    import numpy as np
    for b in stream:
        seen += b["id"].tolist()
        step = stream.step(step + 1)
        if step % 10 == 0:
            ck.save(step, {"seen": np.array(seen)})
            print("step", step, flush=True)
    ck.save(step, {"seen": np.array(seen)})
    print(*seen, file=open(sys.argv[2], "w"))
"""
    place = str(job.folder / "checkpoints")
    all_ids = job.folder / "ids"
    first = job.helper(code, place, str(all_ids))
    first.printed(4)
    first.process.kill()
    first.process.wait()
    os.kill(up.pid, signal.SIGKILL)
    up.wait()
    os.unlink(job.socket)
    job.up("--model", "private")
    said = job.helper(code, place, str(all_ids)).ended()
    assert all_ids.exists(), said
    assert sorted(ids(all_ids.read_text())) == list(range(rows))


@pytest.mark.parametrize("harm", ["cut short", "another file"])
def test_a_compressed_file_that_is_not_what_it_was_is_named(job: Any, harm: str) -> None:
    write(job.data, 40_000, ["gz", "gz"])
    bad = job.data / "1.csv.gz"
    if harm == "cut short":
        bad.write_bytes(bad.read_bytes()[:-1000])
    job.up()
    apply(job)
    if harm == "another file":
        poll(lambda: json.loads(job.headrace("status", "-o", "json").stdout)["datasets"][0]["listing_complete"])
        bad.write_bytes(gzip.compress(csv(0, 10)))
    said = job.trainer(TRAIN, IDS=str(job.folder / "ids")).ended()
    assert "1.csv.gz" in said
    assert ("cut short" if harm == "cut short" else "changed") in said


def test_check_names_a_damaged_file(job: Any) -> None:
    (job.data / "0.csv.gz").write_bytes(csv(0, 10))
    spec = job.folder / "rows.yaml"
    spec.write_text(SPEC.format(root=job.data))
    out = subprocess.run(
        [job.binary, "check", "-f", str(spec)], env=job.env, capture_output=True, text=True, timeout=300
    )
    assert out.returncode != 0
    assert "0.csv.gz" in out.stderr
    assert "does not begin with a gzip header" in out.stderr
