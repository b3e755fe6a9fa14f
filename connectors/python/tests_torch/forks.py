"""Training programs as forks of one process that has imported torch, so that none imports it again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ports import free_port

HERE = Path(__file__).parent
PATIENCE = 900.0  # seconds; a group that has not ended then hangs


class Zygote:
    """The process that forks the programs. modules: what it imports beside torch."""

    def __init__(self, *modules: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="hr-zygote-")
        self.socket = str(Path(self.folder.name) / "socket")
        with socket.socket(socket.AF_UNIX) as listener:  # whoever connects before torch is imported waits for that
            listener.bind(self.socket)
            listener.listen()
            self.process = subprocess.Popen(
                [sys.executable, str(HERE / "zygote.py"), str(listener.fileno()), *modules],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[listener.fileno()],
            )

    def _ask(self, **what: Any) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(what), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())

    def command(self, *program: str) -> list[str]:
        """What a launcher starts in place of [sys.executable, *program], so that the program is a fork."""
        return [sys.executable, "-I", "-S", str(HERE / "forked.py"), self.socket, *program]

    def start(self, program: Path, env: dict[str, str], folder: Path, log: Path, args: Sequence[str] = ()) -> int:
        """Starts a program that prints into log. Returns its process id."""
        pid: int = self._ask(start=str(program), args=list(args), env=env, folder=str(folder), log=str(log))
        return pid

    def run(self, program: Path, env: dict[str, str], folder: Path) -> tuple[int, str]:
        """Runs a program to its end. Returns its exit code, and what it has printed."""
        log = folder / "program.log"
        log.unlink(missing_ok=True)
        pid = self.start(program, env, folder, log)
        (code,) = self.wait([pid], PATIENCE)
        if code is None:
            os.kill(pid, signal.SIGKILL)
        text = log.read_text()
        assert code is not None, f"the program hangs\n{text}"
        return code, text

    def group(self, job: Any, world: int, program: Path, *args: str, **env: str) -> tuple[list[int], list[str]]:
        """Runs a group of ranks of a job to its end. Returns their exit codes, and what each has printed."""
        told = {**job.env, **env, "WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        logs = [job.folder / f"rank-{r}.log" for r in range(world)]
        pids = []
        for r, log in enumerate(logs):
            log.unlink(missing_ok=True)
            pids.append(self.start(program, {**told, "RANK": str(r), "LOCAL_RANK": str(r)}, job.folder, log, args))
        codes = self.wait(pids, PATIENCE)
        for pid, code in zip(pids, codes):
            if code is None:
                os.kill(pid, signal.SIGKILL)
        texts = [log.read_text() for log in logs]
        ended = [code for code in codes if code is not None]
        ends = "\n".join(text[-2000:] for text in texts)
        assert len(ended) == world, f"the group hangs: {codes}\n{ends}{job.logs()[-4000:]}"
        return ended, texts

    def wait(self, pids: list[int], within: float) -> list[int | None]:
        """Waits for these processes. Returns their exit codes; None: it has not ended in time."""
        codes: list[int | None] = self._ask(wait=pids, within=within)
        return codes

    def end(self) -> None:
        self.process.communicate(timeout=300)
        self.folder.cleanup()
