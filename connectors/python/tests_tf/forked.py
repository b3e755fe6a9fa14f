"""Programs that are forks of one process that has imported TensorFlow: a start takes 3 s of CPU, not 7.

    python forked.py serve SOCKET               forks a program for each that asks, until it is ended
    python forked.py SOCKET PROGRAM [ARG...]    asks, and ends as the program ends

If the second is killed, so is its program. SIGTERM and SIGINT are handed on to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any


def ask(path: str, argv: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as server:
        server.connect(path)
        told = {"argv": argv, "env": dict(os.environ), "folder": os.getcwd(), "group": os.getpgid(0)}
        socket.send_fds(server, [b"\n"], [0, 1, 2])
        server.sendall(json.dumps(told).encode() + b"\n")
        answers = server.makefile()
        pid = int(answers.readline())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda got, frame: os.kill(pid, got))
        code = int(answers.readline())
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def serve(path: str) -> None:
    import importlib
    import selectors

    # Not headrace: it refuses to train in a fork of the process that has imported it.
    for module in ("tensorflow", "tensorflow_estimator.python.estimator.api._v2.estimator"):
        importlib.import_module(module)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    waiting = selectors.DefaultSelector()
    waiting.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            if key.data is None:
                pid, client = start(listener)
                waiting.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, client))
                continue
            waiting.unregister(key.fd)
            os.close(key.fd)
            pid, client = key.data
            say(client, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            client.close()


def say(client: socket.socket, number: int) -> None:
    with contextlib.suppress(BrokenPipeError):  # it was killed
        client.sendall(f"{number}\n".encode())


def start(listener: socket.socket) -> tuple[int, socket.socket]:
    client, _ = listener.accept()
    _, files, _, _ = socket.recv_fds(client, 1, 3)
    text = b""
    while not text.endswith(b"\n"):
        text += client.recv(1 << 16)
    pid = os.fork()
    if pid == 0:
        listener.close()
        become(json.loads(text), client, files)
    for file in files:
        os.close(file)
    say(client, pid)
    return pid, client


def become(told: Any, client: socket.socket, files: list[int]) -> None:
    """Runs the program in this process, which was forked, and ends it."""
    import atexit
    import runpy
    import threading
    import traceback

    def end_with_it() -> None:
        client.recv(1)  # the process that asked sends nothing more, so it has ended
        os.kill(os.getpid(), signal.SIGKILL)

    code = 1
    try:
        for i, file in enumerate(files):
            os.dup2(file, i)
        os.setpgid(0, told["group"])
        threading.Thread(target=end_with_it, daemon=True).start()
        os.environ.clear()
        os.environ.update(told["env"])
        os.chdir(told["folder"])
        sys.argv = told["argv"]
        sys.path.insert(0, os.path.dirname(sys.argv[0]))
        runpy.run_path(sys.argv[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(ask(sys.argv[1], sys.argv[2:]))
