"""Flink joins clicks with impressions into a landing, and a trainer learns from them live.

    python run.py [--flink 2.3.0] [--impressions 20000] [--rate 1000] [--kill]

It starts the master, an agent, a Flink cluster and the trainer, waits for the end of data, and
counts in the trainer's journal how often each joined row was trained on. --kill kills Flink's
task manager with kill -9 on the way. It exits with 0 if each row was trained on once, and with 2
if the job had ended before that could be seen: on a slow machine, give it more impressions.
"""

from __future__ import annotations

import argparse
import os
import string
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from flink import HERE, ROOT, Cluster


def main() -> int:
    args = argparse.ArgumentParser()
    args.add_argument("--flink", default="2.3.0", help="its version")
    args.add_argument("--impressions", type=int, default=20_000)
    args.add_argument("--rate", type=int, default=1000, help="impressions per second")
    args.add_argument("--kill", action="store_true", help="kill -9 the task manager on the way")
    args.add_argument("--folder", type=Path, help="for state and logs; default: a new one")
    a = args.parse_args()
    folder = a.folder or Path(tempfile.mkdtemp(prefix="flink_clicks-"))
    print(f"state and logs are in {folder}", flush=True)
    run = Run(folder)
    try:
        return run.all(a.flink, a.impressions, a.rate, a.kill)
    finally:
        run.close()


class Run:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.journal = folder / "journal"
        self.journal.touch()
        self.binary = os.environ.get("HEADRACE_BIN") or str(ROOT / "build" / "headrace")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        self.env.update(HEADRACE_STATE=str(folder / "state"), HEADRACE_AGENT=str(folder / "agent.sock"))
        self.processes: list[subprocess.Popen[bytes]] = []
        self.cluster: Cluster | None = None

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, env=self.env, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def all(self, version: str, impressions: int, rate: int, kill: bool) -> int:
        spec = str(HERE / "clicks.yaml")
        self.start("headrace", self.binary, "up", "-f", spec, "--http", "off", "--socket", self.env["HEADRACE_AGENT"])
        self.cluster = cluster = Cluster(version, self.folder / "flink")
        cluster.until("the agent is up", lambda: Path(self.env["HEADRACE_AGENT"]).exists())
        trainer = self.start("train", sys.executable, str(HERE / "train.py"), str(self.journal))
        clicks = -(-impressions // 4)
        job = cluster.submit(self.script(impressions, clicks, rate))
        print(f"Flink {version} runs job {job}", flush=True)
        cluster.until("the first joined rows are trained on", lambda: self.journal.stat().st_size > 0)
        state = cluster.state(job)
        print(f"the trainer learns while the job is {state}", flush=True)
        seen = state != "FINISHED"
        if kill and seen:
            complete = cluster.checkpoints(job, "completed")
            cluster.until(
                "one more checkpoint is complete",
                lambda: cluster.checkpoints(job, "completed") > complete or cluster.state(job) == "FINISHED",
            )
            print("kill -9 of the task manager", flush=True)
            cluster.restart_task_manager()
        cluster.until("the job has ended", lambda: cluster.state(job) == "FINISHED")
        if kill and seen:
            seen = cluster.checkpoints(job, "restored") > 0
        subprocess.run([self.binary, "push", "clicks", "--end"], env=self.env, stdin=subprocess.DEVNULL, check=True)
        if trainer.wait(120) != 0:
            print((self.folder / "train.log").read_text(), file=sys.stderr)
            return 1
        if not report(self.journal, impressions):
            return 1
        if not seen:
            print(f"the job has ended too early: give it more --impressions than {impressions}", flush=True)
            return 2
        return 0

    def script(self, impressions: int, clicks: int, rate: int) -> Path:
        text = string.Template((HERE / "join.sql").read_text()).substitute(
            STATE=self.folder / "state", CHECKPOINTS=self.folder / "checkpoints",
            RATE=rate, CLICK_RATE=max(1, rate // 4),
            LAST_IMPRESSION=impressions - 1, LAST_CLICK=clicks - 1,
        )  # fmt: skip
        script = self.folder / "join.sql"
        script.write_text(text)
        return script

    def close(self) -> None:
        if self.cluster is not None:
            self.cluster.close()
        for process in reversed(self.processes):
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            process.wait()


def report(journal: Path, impressions: int) -> bool:
    """Compares the journal with the join that Python computes. True: each row was trained on once."""
    trained = Counter(journal.read_text().split())
    expected = {f"{i}:{int(i % 4 == 0)}" for i in range(impressions)}
    once = sum(1 for row in expected if trained[row] == 1)
    more = sum(1 for row in expected if trained[row] > 1)
    never = sum(1 for row in expected if trained[row] == 0)
    other = sum(n for row, n in trained.items() if row not in expected)
    print(f"joined rows       {impressions:>9,}")
    print(f"trained on once   {once:>9,}")
    print(f"twice or more     {more:>9,}")
    print(f"never             {never:>9,}")
    print(f"not of the join   {other:>9,}")
    return once == impressions and other == 0


if __name__ == "__main__":
    sys.exit(main())
