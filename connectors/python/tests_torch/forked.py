"""Stands for a program that a launcher starts: python -I -S forked.py SOCKET PROGRAM ARGUMENTS...

The program itself is a fork of the zygote that listens there. This process ends as the program ends. If this
process is killed, so is the program.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
from typing import Any

zygote = socket.socket(socket.AF_UNIX)
zygote.connect(sys.argv[1])
told = {"start": sys.argv[2], "args": sys.argv[3:], "env": dict(os.environ), "folder": os.getcwd()}
socket.send_fds(zygote, [b"f"], [1, 2])
zygote.sendall(json.dumps(told).encode() + b"\n")
answers = zygote.makefile()
pid = int(answers.readline())


def pass_on(number: int, _: Any) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(pid, number)


signal.signal(signal.SIGTERM, pass_on)
signal.signal(signal.SIGINT, pass_on)
code = int(answers.readline())
if code < 0:
    if -code != signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
sys.exit(code)
