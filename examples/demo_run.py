"""The common part of the quick starts' tests: a run of `headrace demo`, its journals, and what it
must not leave behind."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
BINARY = Path(os.environ.get("HEADRACE_BIN", ROOT / "build" / "headrace"))


class Run(NamedTuple):
    folder: Path
    records: int
    report: dict
    output: str


def click_trainer() -> ModuleType:
    """examples/clicks/train.py"""
    spec = importlib.util.spec_from_file_location("click_trainer", ROOT / "examples" / "clicks" / "train.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def demo(folder: Path, *flags: str) -> list[str]:
    return [str(BINARY), "demo", "--dir", str(folder / "run"), "--report", str(folder / "report.json"),
            "--python", sys.executable, *flags]


def run_of(folder: Path, records: int, kills: list[str], *flags: str) -> Run:
    """A run in which these were killed. On a slow machine, restarting what was killed may take so long that
    everything is read before the last kill. Such a run is right too; then a run of twice the length begins."""
    for attempt in range(3):
        run = once(folder / str(attempt), records << attempt, *flags)
        if killed(run.report) == kills and came_after(run.report):
            return run
    raise AssertionError(f"no run was long enough for all kills: {run.report['kills']}")


def once(folder: Path, records: int, *flags: str) -> Run:
    folder.mkdir()
    done = subprocess.run(demo(folder, "--records", str(records), "--keep", *flags), stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout)
    assert done.returncode == 0, done.stdout
    return Run(folder, records, json.loads((folder / "report.json").read_text()), done.stdout)


def by_plan(r: dict) -> list[dict]:
    """The kills of the plan. A trainer that ended by itself, because the machine stood still, is not one."""
    return [k for k in r["kills"] if k["what"] != "stopped trainer"]


def killed(r: dict) -> list[str]:
    return [k["what"] for k in by_plan(r)]


def came_after(r: dict) -> bool:
    """Whether a record that was produced after the broker's death was trained on."""
    broker = [k for k in by_plan(r) if k["what"] == "broker"]
    return not broker or broker[-1]["release_ms"] is not None


def nothing_is_lost(r: dict, records: int) -> None:
    """And each repeat has its reason."""
    assert r["records"] == records
    assert r["never"] == 0
    assert r["foreign"] == 0
    assert r["applied_once"] + r["applied_twice"] == records
    assert r["twice_unexplained"] == 0
    # A trainer dies with one batch in hand that it has not stepped.
    died = sum(k["what"] in ("trainer", "stopped trainer") for k in r["kills"])
    assert r["applied_twice"] <= died * r["batch_rows"]


# Of a topic: 25 s at 10,000/s, enough time for four kills.
TOPIC_RECORDS = 250_000
TOPIC_KILLS = ["trainer", "trainer", "agent", "master", "broker"]


def all_four_were_killed(r: dict) -> None:
    """The broker was killed last, and records came after that."""
    kills = by_plan(r)
    assert killed(r) == TOPIC_KILLS
    assert kills[-1]["back_ms"] > 0
    assert kills[-1]["release_ms"] > kills[-1]["back_ms"], "no record from after the broker's death has come"


def the_rival_had_the_same(r: dict, about: str) -> None:
    """The same records and kills. How much a group repeats or loses is not tested."""
    for g, kind in zip(r["consumer_groups"], ["consumer", "careful"]):
        assert g["foreign"] == 0
        assert g["applied_once"] + g["applied_twice"] + g["never"] == r["records"]
        assert [k["name"] for k in g["kills"]] == [f"{kind}-1", f"{kind}-2", "broker"]
        ours = [k["name"] for k in by_plan(r) if k["what"] in ("trainer", "broker")]
        assert [name.rpartition("-")[2] for name in ours] == ["1", "2", "broker"], "the group lost other trainers"
    assert about in r["consumer_groups"][0]["about"]


class Recount(NamedTuple):
    """How often each record was handed out, and how often applied: certainly, and in doubt."""

    yielded: np.ndarray
    sure: np.ndarray
    doubt: np.ndarray

    def agrees_with(self, report: dict) -> None:
        assert int((self.sure == 0).sum()) == report["never"]
        assert int(((self.sure == 1) & (self.doubt == 0)).sum()) == report["applied_once"]
        assert int(((self.sure > 0) & (self.sure + self.doubt > 1)).sum()) == report["applied_twice"]


def recount(
    journals: Path, records: int, numbers: Callable[[str, np.ndarray], np.ndarray], sums_of: np.ndarray | None = None
) -> Recount:
    """Reads journals without the code of the report. numbers(name, offsets) gives the numbers of the records
    that begin there. With sums_of, the checksums of the records' bytes are compared too."""
    out = Recount(*(np.zeros(records, int) for _ in range(3)))
    for path in journals.glob("*.journal"):
        names: dict[int, str] = {}
        hand, begun = np.empty(0, int), False
        for kind, _, rows, payload in entries(path):
            if kind == 3:
                said = json.loads(payload)
                names[said["segment"]] = said["name"]
            elif kind == 4:
                runs, _ = struct.unpack_from("<II", payload)
                where = np.frombuffer(payload, "<i8", 2 * runs, 8).reshape(runs, 2)
                at = np.frombuffer(payload, "<i8", rows, 8 + 16 * runs)
                sums = np.frombuffer(payload, "<u8", rows, 8 + 16 * runs + 8 * rows)
                cuts = np.split(at, np.cumsum(where[:, 1])[:-1])
                hand = np.concatenate([numbers(names[s], part) for (s, _), part in zip(where.tolist(), cuts)])
                assert sums_of is None or np.array_equal(sums, sums_of[hand])
                np.add.at(out.yielded, hand, 1)
            elif kind == 5:
                begun = True
            elif kind == 6:
                np.add.at(out.sure, hand, 1)
                begun = False
        if begun:
            np.add.at(out.doubt, hand, 1)
    return out


def entries(path: Path) -> Iterator[tuple[int, int, int, bytes]]:
    """(kind, time, rows, payload) of each complete entry of a journal. Times are CLOCK_MONOTONIC in ns."""
    raw = path.read_bytes()
    at = 0
    while len(raw) - at >= 36:
        magic, kind, _, when, rows, size = struct.unpack_from("<4sIQqII", raw, at)
        assert magic == b"HRJ1"
        end = at + 32 + size
        if end + 4 > len(raw):
            return
        assert zlib.crc32(raw[at:end]) == struct.unpack_from("<I", raw, end)[0]
        yield kind, when, rows, raw[at + 32 : end]
        at = end + 4


def processes_of(folder: Path) -> list[str]:
    """Command lines of processes that have the folder in their command line."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue  # it has just ended
        if str(folder) in line:
            found.append(line)
    return found


def interrupted(folder: Path, stage: str, *flags: str, runs: str = "", trains: bool = True) -> None:
    """Ctrl-C when a line says `stage` leaves no process and no file. Before that there must be a process
    with `runs` in its command line and, with `trains`, a trainer with its model. If we stand still, the
    demo may end before Ctrl-C comes; then another one begins."""
    for attempt in range(5):
        (folder / str(attempt)).mkdir()
        if is_interrupted(folder / str(attempt), stage, *flags, runs=runs, trains=trains):
            return
    raise AssertionError(f"five demos have ended before they were interrupted at {stage!r}")


def is_interrupted(folder: Path, stage: str, *flags: str, runs: str, trains: bool) -> bool:
    """False: the demo has ended by itself."""
    scratch = folder / "tmp"
    scratch.mkdir()
    with subprocess.Popen(demo(folder, *flags), stdout=subprocess.PIPE, text=True, stderr=subprocess.STDOUT,
                          env={**os.environ, "TMPDIR": str(scratch)}) as process:
        assert process.stdout
        said = []
        for line in process.stdout:
            said.append(line)
            if stage in line:
                break
        else:
            raise AssertionError(f"the demo ended before it said {stage!r}:\n{''.join(said)}")
        running = processes_of(folder)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=600)
    if process.returncode == 0:
        return False
    assert any(runs in line for line in running)
    # Another demo may run on this machine. The models that our trainers name are ours.
    models = {Path(m) for line in running for m in re.findall(r"/dev/shm/headrace-demo-[^/ ]+", line)}
    assert models or not trains
    assert "interrupted" in output
    assert processes_of(folder) == []
    assert not (folder / "run").exists(), "the demo left its folder"
    assert list(scratch.iterdir()) == [], "the demo left sockets, or a broker's folder"
    assert not [m for m in models if m.exists()]
    return True
