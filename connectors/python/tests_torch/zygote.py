"""Imports torch once, and what its arguments name, and forks a program for each line of JSON that it reads.

{"start": PROGRAM, "args": [...], "env": {...}, "folder": DIR, "log": FILE} is answered with a process id,
{"wait": [PID, ...], "within": SECONDS} with the exit codes; null: it has not ended.

It also forks programs for forked.py. Its first argument is the file descriptor of the socket to listen at.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import time
import traceback
from typing import Any

import torch._dynamo  # optimizers would import it in each rank
import torch.distributed
import torch.nn.parallel  # noqa: F401


def become(rank: dict[str, Any]) -> None:
    """Runs the program in this process, which was forked, and ends it."""
    code = 1
    try:
        out = rank.get("files") or [os.open(rank["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)] * 2
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out[0], 1)
        os.dup2(out[1], 2)
        os.environ.clear()
        os.environ.update(rank["env"])
        os.chdir(rank["folder"])
        sys.argv = [rank["start"], *rank["args"]]
        sys.path.insert(0, os.path.dirname(rank["start"]))
        runpy.run_path(rank["start"], run_name="__main__")
        code = 0
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def wait(pids: list[int], within: float) -> list[int | None]:
    codes: dict[int, int | None] = dict.fromkeys(pids)
    end = time.monotonic() + within
    while None in codes.values() and time.monotonic() < end:
        for pid in [p for p, code in codes.items() if code is None]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return list(codes.values())


class Server:
    """Forks programs for those who connect. If one of them ends, so does its program."""

    def __init__(self, listener: socket.socket) -> None:
        self.waiting = selectors.PollSelector()  # not epoll, which forks would share
        self.waiting.register(listener, selectors.EVENT_READ, self.take)
        self.waiting.register(sys.stdin, selectors.EVENT_READ)
        self.programs: dict[int, tuple[int, socket.socket]] = {}  # by pidfd

    def asked(self) -> None:
        """Serves them until a line can be read from standard input."""
        while True:
            key, _ = self.waiting.select()[0]  # one at a time: it may close what the next one is about
            if key.data is None:
                return
            key.data(key.fileobj)

    def take(self, listener: socket.socket) -> None:
        asker, _ = listener.accept()
        _, files, _, _ = socket.recv_fds(asker, 1, 2)
        with asker.makefile() as text:
            line = text.readline()
        if not line:  # it was killed before it had asked
            asker.close()
            return
        pid = os.fork()
        if pid == 0:
            for file in (listener, asker, *(other for _, other in self.programs.values())):
                file.close()
            become(json.loads(line) | {"files": files})
        for file in files:
            os.close(file)
        pidfd = os.pidfd_open(pid)
        self.programs[pidfd] = pid, asker
        self.waiting.register(pidfd, selectors.EVENT_READ, self.ended)
        self.waiting.register(asker, selectors.EVENT_READ, lambda _: self.left(pidfd))
        self.say(asker, pid)

    def left(self, pidfd: int) -> None:
        """The one that asked for this program has ended."""
        self.waiting.unregister(self.programs[pidfd][1])
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)

    def ended(self, pidfd: int) -> None:
        """This program has ended."""
        self.waiting.unregister(pidfd)
        pid, asker = self.programs.pop(pidfd)
        os.close(pidfd)
        if asker in self.waiting.get_map():
            self.waiting.unregister(asker)
        self.say(asker, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        asker.close()

    @staticmethod
    def say(asker: socket.socket, number: int) -> None:
        with contextlib.suppress(BrokenPipeError):  # the asker has ended
            asker.sendall(f"{number}\n".encode())


listener = socket.socket(fileno=int(sys.argv[1]))
for module in sys.argv[2:]:
    importlib.import_module(module)
server = Server(listener)
while True:
    server.asked()
    line = sys.stdin.readline()  # one at a time, so none waits in the buffer
    if not line:
        break
    asked = json.loads(line)
    if "start" in asked:
        pid = os.fork()
        if pid == 0:
            become(asked)
        print(pid, flush=True)
    else:
        print(json.dumps(wait(asked["wait"], asked["within"])), flush=True)
