"""Two trainers of the same model on the same click log are killed every ten seconds. One keeps
checkpoints in memory and on storage, the other on storage alone. The table at the end comes from
the trainers' own journals.

    make quickstart-flash
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
SPEC = """
name: clicks
files: {{root: {root}, paths: ["*.tsv"]}}
passes: 1000
decode:
  format: tsv
  columns:
    - {{name: label, path: "0", dtype: float32}}
    - {{name: cat, paths: ["14..39"], dtype: int64, default: 0, hash: {{buckets: 1048576, salt: clicks}}}}
"""


def write_log(folder: Path, records: int) -> None:
    """A click log in Criteo's layout."""
    rng = random.Random(7)
    lines = []
    for _ in range(5000):
        numbers = [str(rng.randrange(100)) for _ in range(13)]
        words = [f"{rng.randrange(1 << 32):08x}" for _ in range(26)]
        lines.append("\t".join([str(int(rng.random() < 0.25)), *numbers, *words]))
    part = "\n".join(lines) + "\n"
    folder.mkdir()
    for day in range(4):
        with open(folder / f"day_{day}.tsv", "w") as file:
            for _ in range(-(-records // 20000)):
                file.write(part)


class Job:
    """A master, an agent and a trainer: `headrace run` in a folder of its own."""

    def __init__(self, name: str, binary: str, work: Path, log: Path, memory: float, storage: float) -> None:
        self.name, self.folder = name, work / name
        self.folder.mkdir()
        (self.folder / "clicks.yaml").write_text(SPEC.format(root=log))
        self.journal = self.folder / "journal"
        env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        command = [binary, "run", "--model", "replicated", "--max-restarts", "10000", "--http", "off"]
        command += ["--state", str(self.folder / "state"), "--socket", str(self.folder / "a.sock")]
        command += ["-f", str(self.folder / "clicks.yaml"), "--", sys.executable, str(HERE / "train.py")]
        command += ["--checkpoints", str(self.folder / "ckpt"), "--journal", str(self.journal)]
        command += ["--memory", str(memory), "--storage", str(storage)]
        self.out = open(self.folder / "run.log", "wb")  # noqa: SIM115  (it lives as long as the process)
        self.process = subprocess.Popen(command, stdout=self.out, stderr=self.out, env=env)
        self.kills: list[float] = []

    def lives(self) -> list[dict]:
        """What each process of the trainer did, in order."""
        found = []
        for path in sorted(self.journal.glob("*.json")) if self.journal.exists() else []:
            page = np.fromfile(path.with_suffix(".page"), np.float64)
            names = ("records", "first", "last", "saves", "saving")
            found.append({**json.loads(path.read_text()), **dict(zip(names, page.tolist()))})
        return found

    def training(self) -> bool:
        lives = self.lives()
        return len(lives) > len(self.kills) and lives[-1]["first"] > 0

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.lives()[-1]["pid"], signal.SIGKILL)
        self.kills.append(time.time())

    def alive(self) -> None:
        if self.process.poll() is not None:
            raise SystemExit(
                f"{self.name} ended with {self.process.returncode}:\n{(self.folder / 'run.log').read_text()[-4000:]}"
            )

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)
        self.out.close()

    def figures(self, wall: float) -> dict:
        lives = [life for life in self.lives() if life["first"] > 0]
        twice = sum(max(0, a["records"] - b["restored"]) for a, b in zip(lives, lives[1:]))
        trained = sum(life["records"] - life["restored"] for life in lives)
        training = sum(life["last"] - life["first"] for life in lives)
        away = sum(b["first"] - kill for kill, b in zip(self.kills, lives[1:]))
        rate = trained / training
        lost = away + twice / rate
        return {
            "kills": len(self.kills),
            "records in the model": int(lives[-1]["records"]),
            "records trained twice": int(twice),
            "from memory": sum(life["source"] == "memory" for life in lives[1:]),
            "checkpoints": int(sum(life["saves"] for life in lives)),
            "save() took on average, ms": round(
                1000 * sum(x["saving"] for x in lives) / max(1, sum(x["saves"] for x in lives))
            ),
            "seconds until it trains again, each": round(away / max(1, len(lives) - 1), 2),
            "seconds lost": round(lost, 1),
            "goodput, %": round(100 * max(0.0, wall - lost) / wall, 1),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=100)
    parser.add_argument("--between", type=float, default=10, help="seconds between two kills")
    parser.add_argument("--records", type=int, default=400_000, help="records of one pass over the log")
    parser.add_argument("--report", help="file for the figures, as JSON")
    args = parser.parse_args()
    binary = os.environ.get("HEADRACE_BIN") or str(HERE.parents[1] / "build" / "headrace")
    work = Path(tempfile.mkdtemp(prefix="headrace-flash-"))
    jobs: list[Job] = []
    try:
        write_log(work / "log", args.records)
        print(
            f"A model of 208 MiB. Both trainers are killed every {args.between:.0f} s, for {args.seconds:.0f} s.",
            flush=True,
        )
        jobs = [Job("memory", binary, work, work / "log", 1, 5), Job("storage", binary, work, work / "log", 0, 5)]
        deadline = time.monotonic() + 120
        while not all(job.training() for job in jobs):
            for job in jobs:
                job.alive()
            if time.monotonic() > deadline:
                raise SystemExit("the trainers did not begin within 120 s; see " + str(work))
            time.sleep(0.05)
        began = time.time()
        killed = began
        while time.time() - began < args.seconds:
            for job in jobs:
                job.alive()
            # After the last kill both need time to come back.
            due = time.time() - killed >= args.between and time.time() - began < args.seconds - args.between / 2
            if due and all(job.training() for job in jobs):
                for job in jobs:
                    job.kill()
                killed = time.time()
                print(f"{killed - began:5.0f} s  both are killed", flush=True)
            time.sleep(0.02)
        wall = time.time() - began
        figures = {job.name: job.figures(wall) for job in jobs}
        for job in jobs:
            job.end()
        print()
        print(f"{'':40}{'in memory, too':>16}{'storage alone':>16}")
        for name in figures["memory"]:
            print(f"{name:40}{figures['memory'][name]:>16,}{figures['storage'][name]:>16,}")
        print()
        print("memory: a checkpoint in memory each second and on storage each 5 s. storage: on storage each 5 s.")
        if args.report:
            Path(args.report).write_text(json.dumps(figures, indent=1) + "\n")
    finally:
        for job in jobs:
            if job.process.poll() is None:
                job.process.kill()
                job.process.wait()
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
