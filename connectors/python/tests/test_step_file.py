"""Step files: a process notes what it has stepped, for its agent after its death. agent/stepfile reads the vectors."""

from __future__ import annotations

import base64
import json
import os
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from headrace import _stepfile as stepfile
from headrace._frame import SPAN, Frame
from headrace._ranges import Ledger

VECTORS = Path(__file__).parents[3] / "api" / "vectors" / "stepfiles"
ABOUT = {
    "rank": 3, "world_size": 4, "attempt": 1, "incarnation": "00c0ffee00c0ffee", "pid": 4711, "made_ns": 123456789,
    "job": "default", "agent": "node-1", "generation": 1, "stream": 2, "dataset": 7, "virtual": None,
}  # fmt: skip


def ledger(first: int, per: int, *spans: tuple[int, int, int], times: bool = False, sequence: int = 5) -> Ledger:
    """Spans: rows, offset of the first record, bytes of a record. Order space lies 1000 higher."""
    frame = Frame()
    frame.rows = sum(rows for rows, _, _ in spans)
    frame.first, frame.rows_per_batch, frame.batches = first, per, max(1, -(-frame.rows // per))
    frame.spans = np.zeros(len(spans), SPAN)
    offsets: list[int] = []
    for i, (rows, start, size) in enumerate(spans):
        end = start + rows * size
        frame.spans[i] = (rows, 9, 0, 7, 4 + i, start, end + 3, start + 999, end + 1003, 2, 6, sequence + i, 0, b"")
        offsets += range(start, end, size)
    frame.offsets = np.array(offsets, np.int64)
    pieces = frame.batches + len(spans) if times else 0
    frame.times = b"".join(struct.pack("<qq", 10 * n, 10 * n + 5) for n in range(1, pieces))
    return Ledger(frame)


def empty(file: stepfile.StepFile, ledgers: list[Ledger]) -> None:
    """A stream without a batch."""


def stepped(file: stepfile.StepFile, ledgers: list[Ledger]) -> None:
    ledgers += [ledger(1, 4, (10, 0, 7), (6, 500, 9), times=True), ledger(5, 4, (3, 800, 5))]
    for n in ledgers:
        file.frame(n)
    for through in range(1, 4):
        file.stepped(through, 40 + through)
    file.durable(1)


def freed(file: stepfile.StepFile, ledgers: list[Ledger]) -> None:
    """Later frames are noted in the place of earlier ones."""
    for k in range(100):
        ledgers.append(ledger(2 * k + 1, 2, (4, 100 * k, 11)))
        file.frame(ledgers[-1])
        file.stepped(2 * k + 2, k + 1)
        if k >= 5:
            file.durable(2 * (k - 5) + 1)
            ledgers[:] = [n for n in ledgers if n.last > 2 * (k - 5) + 1]


def grown(file: stepfile.StepFile, ledgers: list[Ledger]) -> None:
    """The notes need more memory than the file had at first."""
    for k in range(8):
        ledgers.append(ledger(k + 1, 99, *[(1, 10 * n, 3) for n in range(5)]))
        file.frame(ledgers[-1])
    file.stepped(7, 7)


STORIES = [empty, stepped, freed, grown]


def told(ledgers: list[Ledger], durable: int) -> list[list[Any]]:
    return [
        [n, one.rows_of(n), one.leases_of(n)]
        for one in ledgers
        for n in range(max(one.first, durable + 1), one.last + 1)
    ]


@pytest.mark.parametrize("story", STORIES, ids=[s.__name__ for s in STORIES])
def test_a_step_file_is_as_the_vectors_say(story: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepfile, "ROOM", 2048)
    ledgers: list[Ledger] = []
    file = stepfile.StepFile(str(tmp_path / "file"), ABOUT)
    story(file, ledgers)
    through, step = struct.unpack_from("<Qq", max(file._memory[at : at + 32] for at in (64, 96)), 8)
    durable = file._durable
    content = file._memory[: file._room].rstrip(b"\0")
    file.close(remove=True)
    vector = {
        "file": base64.b64encode(content).decode(),
        "about": ABOUT,
        "durable": durable,
        "through": through,
        "step": step,
        "batches": told(ledgers, durable),
    }
    where = VECTORS / f"{story.__name__}.json"
    assert len(content) > stepfile.ROOM or story is not grown
    if os.environ.get("REWRITE_VECTORS"):
        where.write_text(json.dumps(vector) + "\n")
    assert json.loads(where.read_text()) == vector


def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)
    file = stepfile.open_(str(tmp_path), ABOUT)
    assert file is not None
    (path,) = tmp_path.iterdir()
    assert path.name == "00c0ffee00c0ffee-2"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.close(remove=True)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_others_can_enter_is_not_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    os.chmod(tmp_path, 0o755)
    assert stepfile.open_(str(tmp_path), ABOUT) is None
    assert "not a folder for its owner alone (mode 0755)" in caplog.text
    assert not list(tmp_path.iterdir())


def test_a_process_that_is_killed_leaves_the_file_without_its_lock(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o700)
    code = (
        "import json, os, sys, time; from headrace import _stepfile\n"
        "file = _stepfile.open_(sys.argv[1], json.loads(sys.argv[2]))\n"
        "file.stepped(0, 5); os.write(1, b'there\\n'); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path), json.dumps(ABOUT)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process, process.stdout as out:
        assert out.readline() == b"there\n"
        assert locked(tmp_path / "00c0ffee00c0ffee-2")
        process.kill()
        process.wait()
    assert not locked(tmp_path / "00c0ffee00c0ffee-2")


def locked(path: Path) -> bool:
    code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+b'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    return subprocess.run([sys.executable, "-c", code, str(path)], stderr=subprocess.DEVNULL).returncode != 0


def test_without_room_steps_are_said_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(stepfile, "MOST", stepfile.ROOM + 4096)
    file = stepfile.StepFile(str(tmp_path / "file"), ABOUT)
    for k in range(40):
        file.frame(ledger(k + 1, 99, *[(1, 10 * n, 3) for n in range(50)]))
    file.stepped(39, 39)
    assert "is full" in caplog.text
    file.close(remove=True)
