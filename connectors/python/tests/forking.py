"""Python programs as forks of a process that has imported numpy and headrace: a start takes
an eighth of the CPU time.

In all else a program behaves as with `python -c`: its process id, files, environment and signals
are its own, the interpreter ends it, and it stays a zombie until it is waited for. Two processes
fork in turn, so that two programs that start one after the other have different seeds of hash().
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import itertools
import json
import os
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from collections.abc import Mapping
from typing import IO, Any

# Variables with these prefixes have an effect only when a process starts. A program whose values
# differ from ours is started, not forked.
AT_THE_START = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "OPENBLAS_", "OMP_", "MKL_", "NPY_", "NUMPY_")


def program(
    code: str,
    args: tuple[str, ...],
    env: dict[str, str],
    out: IO[bytes],
    stdin: bool = False,
    within: tuple[str, ...] = (),
) -> Any:
    """Starts a program. within: a command that starts it; then it is not forked."""
    env = written_whole(env)
    if not within:
        server = Server.next()
        if server.at_the_start == at_the_start(env):
            return Forked(server, code, args, env, out, stdin)
    return subprocess.Popen(
        [*within, sys.executable, "-c", code, *args],
        env=env,
        stdin=subprocess.PIPE if stdin else None,
        stdout=out,
        stderr=out,
    )


def written_whole(env: Mapping[str, str]) -> dict[str, str]:
    """env without PYTHONUNBUFFERED. With it print() writes each of its arguments by itself, and what
    another thread logs may come between them."""
    return {k: v for k, v in env.items() if k != "PYTHONUNBUFFERED"}


def at_the_start(env: dict[str, str]) -> dict[str, str]:
    return {k: v for k, v in env.items() if k.startswith(AT_THE_START) and k != "PYTHONPATH"}


def python_path(env: Mapping[str, str]) -> list[str]:
    return [os.path.abspath(folder) for folder in env.get("PYTHONPATH", "").split(os.pathsep) if folder]


class Server:
    """A process that forks programs until it is ended, or we are."""

    _all: list[Server] = []  # noqa: RUF012
    _turn = itertools.count()
    _lock = threading.Lock()

    @classmethod
    def next(cls) -> Server:
        with cls._lock:
            if not cls._all:
                cls._all[:] = [cls(), cls()]
            return cls._all[next(cls._turn) % 2]

    def __init__(self) -> None:
        env = written_whole({k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")})
        self.at_the_start = at_the_start(env)
        self._control, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                env=env,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        atexit.register(self._end)

    def hand(self, files: list[int]) -> None:
        socket.send_fds(self._control, [b"f"], files)

    def _end(self) -> None:
        self._control.close()
        self._process.wait()


class Forked:
    """A program that was forked, with the methods of subprocess.Popen."""

    def __init__(
        self, server: Server, code: str, args: tuple[str, ...], env: dict[str, str], out: IO[bytes], stdin: bool
    ) -> None:
        self.args = [sys.executable, "-c", code, *args]
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._server, theirs = socket.socketpair()
        source, sink = os.pipe() if stdin else (os.dup(0), None)
        server.hand([theirs.fileno(), source, out.fileno()])
        theirs.close()
        os.close(source)
        if sink is not None:
            self.stdin = os.fdopen(sink, "wb")
        told = {"code": code, "args": args, "env": env, "folder": os.getcwd()}
        self._server.sendall(json.dumps(told).encode() + b"\n")
        self.pid = self._answer()

    def _answer(self) -> int:
        text = b""
        while not text.endswith(b"\n"):
            more = self._server.recv(100)
            if not more:
                raise RuntimeError("the process that forks programs has ended")
            text += more
        return int(text)

    def poll(self) -> int | None:
        with self._lock:
            if self.returncode is None and self._ready(0):
                self.returncode = self._answer()
                self._server.sendall(b"w")  # now it is waited for
                self._server.recv(1)  # and is no zombie any more
                self._server.close()
        return self.returncode

    def _ready(self, within: float | None) -> bool:
        """Whether it has ended; waits for that at most so many seconds."""
        waiting = select.poll()
        waiting.register(self._server, select.POLLIN)
        return bool(waiting.poll(None if within is None else within * 1000))

    def wait(self, timeout: float | None = None) -> int:
        if self.poll() is None and not self._ready(timeout):
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        code = self.poll()
        assert code is not None
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def serve(control: socket.socket) -> dict[str, Any] | None:
    """Forks a program for each request. In a fork it returns the program to become; in the server it
    returns None, once nobody can ask any more."""
    programs: dict[int, tuple[int, socket.socket]] = {}  # by pidfd
    waiting = selectors.PollSelector()  # not epoll, which forks would share
    waiting.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.fileobj is control:
                word, files, _, _ = socket.recv_fds(control, 1, 3)
                if not word:
                    return None
                asker = socket.socket(fileno=files[0])
                text = b""
                while not text.endswith(b"\n"):
                    text += asker.recv(1 << 16) or b"\n"
                pid = os.fork()
                if pid == 0:
                    for file in (control, asker, *(other for _, other in programs.values())):
                        file.close()
                    for number in programs:
                        os.close(number)
                    os.dup2(files[1], 0)
                    os.dup2(files[2], 1)
                    os.dup2(files[2], 2)
                    os.close(files[1])
                    os.close(files[2])
                    told: dict[str, Any] = json.loads(text)
                    return told
                os.close(files[1])
                os.close(files[2])
                pidfd = os.pidfd_open(pid)
                programs[pidfd] = pid, asker
                waiting.register(pidfd, selectors.EVENT_READ)
                say(asker, pid)
            elif isinstance(key.fileobj, int):
                pidfd = key.fileobj
                pid, asker = programs[pidfd]
                waiting.unregister(pidfd)
                ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
                assert ended is not None
                say(asker, ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)
                waiting.register(asker, selectors.EVENT_READ, pidfd)
            else:  # its asker waits for it, or has ended
                waiting.unregister(key.fileobj)
                pid, asker = programs.pop(key.data)
                os.close(key.data)
                os.waitpid(pid, 0)
                asker.recv(1)  # closing with a byte unread would give the asker ECONNRESET
                asker.close()


def say(asker: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # the asker has ended
        asker.sendall(f"{number}\n".encode())


def become(told: dict[str, Any]) -> types.ModuleType:
    """Makes this fork the program's process. Returns the program's __main__."""
    import headrace._trainer

    headrace._trainer._BORN = os.getpid()  # a fork of a trainer may not train; this one may
    numpy_random = sys.modules.get("numpy.random")
    if numpy_random is not None:
        numpy_random.seed()
    os.chdir(told["folder"])
    sys.path[: 1 + len(python_path(os.environ))] = ["", *python_path(told["env"])]
    os.environ.clear()
    os.environ.update(told["env"])
    time.tzset()
    sys.argv[:] = ["-c", *told["args"]]
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=__builtins__, __annotations__={})
    sys.modules["__main__"] = main
    return main


if __name__ == "__main__":
    ours = sys.modules["__main__"]  # keeps this module alive once sys.modules has the program's
    import headrace  # noqa: F401

    gc.freeze()
    try:
        told = serve(socket.socket(fileno=int(sys.argv[1])))
    except KeyboardInterrupt:
        told = None
    if told is not None:
        exec(compile(told["code"], "<string>", "exec"), become(told).__dict__)
