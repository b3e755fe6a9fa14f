"""Starts a TensorFlow cluster on this machine: python cluster.py [--workers 2] -- python train.py

One parameter server, a chief, workers and an evaluator run the same command, each with its
TF_CONFIG. A task that ends with an error is started again. Ends when all have ended well.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

Task = tuple[str, int]


def free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    for s in held:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in held]
    for s in held:
        s.close()
    return ports


class Cluster:
    """The tasks that run. logs: a folder for a file per task; None: they print here."""

    def __init__(
        self,
        command: Sequence[str],
        workers: int,
        env: Mapping[str, str],
        logs: Path | None = None,
        cwd: Path | None = None,
    ) -> None:
        self.command, self.env, self.logs, self.cwd = list(command), dict(env), logs, cwd
        ports = iter(free_ports(2 + workers))
        counts = {"ps": 1, "chief": 1, "worker": workers}
        self.hosts = {kind: [f"127.0.0.1:{next(ports)}" for _ in range(n)] for kind, n in counts.items() if n}
        self.tasks: list[Task] = [(kind, i) for kind, hosts in self.hosts.items() for i in range(len(hosts))]
        self.tasks.append(("evaluator", 0))
        self.running: dict[Task, subprocess.Popen[bytes]] = {}
        self.failed: list[tuple[str, int]] = []  # kind and exit status

    def start(self, task: Task) -> None:
        config = {"cluster": self.hosts, "task": {"type": task[0], "index": task[1]}}
        env = {**self.env, "TF_CONFIG": json.dumps(config)}
        out = open(self.log(task), "ab") if self.logs is not None else None  # noqa: SIM115
        self.running[task] = subprocess.Popen(self.command, env=env, cwd=self.cwd, stdout=out, stderr=out)
        if out is not None:
            out.close()

    def log(self, task: Task) -> Path:
        assert self.logs is not None
        return self.logs / f"{task[0]}-{task[1]}.log"

    def look(self) -> bool:
        """Starts again what has failed. False: all tasks have ended well."""
        for task, process in list(self.running.items()):
            status = process.poll()
            if status is None:
                continue
            del self.running[task]
            if status:
                print(f"{task[0]} {task[1]} ended with status {status}: started again", file=sys.stderr, flush=True)
                self.failed.append((task[0], status))
                self.start(task)
        return bool(self.running)

    def stop(self) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    cluster = Cluster(args.command, args.workers, os.environ)
    try:
        for task in cluster.tasks:
            cluster.start(task)
        while cluster.look():
            time.sleep(0.2)
    finally:
        cluster.stop()


if __name__ == "__main__":
    main()
