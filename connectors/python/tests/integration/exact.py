"""Groups of workers that read a bit_exact dataset, and what each of them got in every step,
whichever of them is killed."""

from __future__ import annotations

import hashlib
import json
import signal
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headrace import _manifest as manifest
from ports import free_port

ROOT = Path(__file__).parents[4]


class Input:
    """Where each record begins: for each segment the offsets and ids of its records, in order."""

    def __init__(self, segments: dict[str, tuple[Sequence[int], Sequence[int]]]) -> None:
        self.segments = segments

    def between(self, name: str, start: int, end: int) -> Sequence[int]:
        """The ids of the records that begin in [start, end) of a segment."""
        offsets, ids = self.segments[name]
        return ids[bisect_left(offsets, start) : bisect_left(offsets, end)]

    def __len__(self) -> int:
        return sum(len(ids) for _, ids in self.segments.values())


# A rank of a group. It notes the hash of each batch, with its step and virtual rank.
TRAINER = """
import hashlib, json, os, signal, time
import headrace
import numpy as np
from train import Group

cfg = json.loads(os.environ["TRAINER"])
trainer = headrace.init()
steps = headrace.dataset("rows").steps(cfg["rows"])
checkpoints = headrace.Checkpointer(cfg["dir"], steps)
restored = checkpoints.restore()
step = restored.step if restored is not None else 0
print("restored", step, flush=True)
group, lists = Group(trainer.rank, trainer.world_size), iter(steps)
with open(cfg["journal"], "a") as journal:
    while True:
        batches = next(lists, [])
        step += 1
        for b in batches:
            own = hashlib.sha256(b["id"].tobytes() + b["dense"].tobytes())
            print(step, b.virtual_rank, own.hexdigest(), *b["id"].tolist(), file=journal)
        journal.flush()
        if not group.sum(np.array([len(batches)]))[0]:
            break
        if cfg.get("die") == [trainer.rank, step, "before"]:
            os.kill(os.getpid(), signal.SIGKILL)
        steps.step(step)
        time.sleep(cfg.get("pause", 0))
        if cfg.get("die") == [trainer.rank, step, "behind"]:
            os.kill(os.getpid(), signal.SIGKILL)
        if step % cfg["every"] == 0:
            checkpoints.save(step, {"step": step}).wait()
steps.close()
print("end", step - 1, flush=True)
"""


class Runs:
    """Groups of workers over the same input, and what all of them noted."""

    def __init__(self, job: Any, input_: Input, patience: float) -> None:
        self.job, self.input = job, input_
        self.noted: dict[tuple[int, int], str] = {}  # (step, virtual rank) -> hash
        self.ids: dict[tuple[int, int], list[int]] = {}
        self.last = 0  # the step at which the group before died
        self.read = 0  # how often a batch was yielded
        self.patience = patience

    def group(self, world: int, rows: int = 64, meanwhile: Any = None, **more: Any) -> list[str]:
        """Runs one generation until it ends or dies. Returns what each rank has printed."""
        port = free_port()
        ranks = []
        journals = [self.job.folder / f"journal-{len(self.job.processes)}-{rank}" for rank in range(world)]
        for rank in range(world):
            cfg = {
                "rows": rows,
                "dir": str(self.job.folder / "ckpt"),
                "every": 4,
                "journal": str(journals[rank]),
                **more,
            }
            ranks.append(
                self.job.trainer(
                    TRAINER, TRAINER=json.dumps(cfg), HEADRACE_RANK=str(rank), HEADRACE_WORLD_SIZE=str(world),
                    MASTER_PORT=str(port), PYTHONPATH=str(ROOT / "examples" / "checkpoint"),
                )
            )  # fmt: skip
        if meanwhile is not None:
            meanwhile(self.job, journals[0])
        out = [rank.ended(within=self.patience) for rank in ranks]
        for rank, journal in enumerate(journals):
            for step, v, sha, *ids in (line.split() for line in journal.read_text().splitlines()):
                assert int(v) % world == rank
                key = int(step), int(v)
                assert self.noted.setdefault(key, sha) == sha, f"step {step}: another batch of virtual rank {v}"
                self.ids[key] = [int(i) for i in ids]
                self.read += 1
        return out

    def checked(self) -> None:
        """Checks every checkpoint: its audit names exactly the records of the batches up to its step. The
        records are found in the input by their offsets."""
        found = manifest.find(str(self.job.folder / "ckpt"))
        assert found
        for m in found:
            audit = json.loads(self.job.headrace("audit", m.path, "-o", "json").stdout)
            inside: Counter[int] = Counter()
            for r in (r for d in audit["datasets"] for p in d["partitions"] for n in p["passes"] for r in n["ranges"]):
                inside.update(self.input.between(r["name"], r["start"], r["end"]))
            learned: Counter[int] = Counter()
            for (step, _), ids in self.ids.items():
                if step <= m.step:
                    learned.update(ids)
            assert inside == learned, m.path

    def hashes(self) -> list[str]:
        """A hash for each step, over the batches of its virtual ranks in order."""
        steps: dict[int, Any] = {}
        for (step, v), sha in sorted(self.noted.items()):
            steps.setdefault(step, hashlib.sha256()).update(f"{v} {sha}\n".encode())
        assert list(steps) == list(range(1, len(steps) + 1))
        return [steps[step].hexdigest() for step in sorted(steps)]

    def rows(self) -> int:
        return sum(map(len, self.ids.values()))


def run(
    kind: Any,
    binary: str,
    folder: Path,
    plan: list[dict[str, Any]],
    prepare: Callable[[Any], Input],
    passes: int = 2,
    patience: float = 300,
) -> Runs:
    """Runs a job whose groups follow the plan; the last group reads to the end. prepare gives the job
    its dataset `rows`, and returns what is in it."""
    folder.mkdir(parents=True)
    job = kind(binary, folder)
    job.socket = job.env["HEADRACE_AGENT"] = str(folder / "a.sock")
    try:
        job.up("--model", "replicated")
        runs = Runs(job, prepare(job), patience)
        for group in plan[:-1]:
            out = runs.group(**group)
            assert all(f"restored {4 * (runs.last // 4)}" in o for o in out), "\n".join(out) + job.logs()
            runs.last = group["die"][1]
            runs.checked()
            died = [p.returncode for p in job.processes if p.returncode == -signal.SIGKILL]
            assert died, "\n".join(out) + job.logs()
            assert not any("end " in o for o in out), "\n".join(out) + job.logs()
        out = runs.group(**plan[-1])
        assert all("end " in o for o in out), "\n".join(out) + job.logs()
        assert runs.rows() == passes * len(runs.input)
        runs.checked()
        return runs
    finally:
        job.stop()
