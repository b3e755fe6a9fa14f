"""Training programs as forks of one process that has imported torch: a start takes no seconds."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def free_port() -> int:
    """Below those that the system gives to outgoing connections: rank 0 listens there later."""
    while True:
        port = random.randrange(20_000, 32_000)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


class Zygote:
    """The process that forks them. modules: what it imports beside torch."""

    def __init__(self, *modules: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(HERE / "zygote.py"), *modules],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def _ask(self, **what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def start(self, program: Path, env: dict[str, str], folder: Path, log: Path) -> int:
        """Starts a program that prints into log; gives its process id."""
        pid: int = self._ask(start=str(program), env=env, folder=str(folder), log=str(log))
        return pid

    def wait(self, pids: list[int], within: float) -> list[int | None]:
        """The exit codes; None: it has not ended."""
        codes: list[int | None] = self._ask(wait=pids, within=within)
        return codes

    def end(self) -> None:
        self.process.communicate(timeout=300)
