"""A program that is a fork ends, prints and is killed as one that was started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import forking
import pytest

Start = Callable[..., tuple[Any, Path]]


@pytest.fixture(params=["forked", "started"])
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Start:
    def start(code: str, *args: str, stdin: bool = False, **env: str) -> tuple[Any, Path]:
        log = tmp_path / f"log-{len(os.listdir(tmp_path))}"
        within = ("env",) if request.param == "started" else ()
        with log.open("wb") as out:
            process = forking.program(code, args, {**os.environ, **env}, out, stdin=stdin, within=within)
        assert isinstance(process, forking.Forked if request.param == "forked" else subprocess.Popen)
        return process, log

    return start


@pytest.mark.parametrize(
    ("code", "ended", "said"),
    [
        ("print('so')", 0, "so\n"),
        ("import sys; sys.exit(3)", 3, ""),
        ("import sys; sys.exit('no more')", 1, "no more\n"),
        ("def f():\n    raise ValueError('wrong')\nf()", 1, 'in f\nValueError: wrong\n'),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt\n"),
        ("x = (", 1, "SyntaxError: '(' was never closed\n" if sys.version_info >= (3, 10) else ""),
        ("import os; print('lost'); os._exit(5)", 5, ""),
        ("import os; print('lost'); os.kill(os.getpid(), 9)", -signal.SIGKILL, ""),
        ("import os; os.abort()", -signal.SIGABRT, ""),
        ("import atexit; atexit.register(print, 'last'); print('first')", 0, "first\nlast\n"),
        ("import threading as t, time; t.Thread(target=lambda: (time.sleep(0.1), print('late'))).start()", 0, "late\n"),
        ("class A:\n    def __del__(self): print('gone')\na = A()", 0, "gone\n"),
    ],
)  # fmt: skip
def test_it_ends_and_prints_as_its_code_says(start: Start, code: str, ended: int, said: str) -> None:
    process, log = start(code)
    assert process.wait(300) == process.poll() == process.returncode == ended, log.read_text()
    text = log.read_text()
    assert text.endswith(said), text
    assert bool(text) == bool(said) or not said, text


def test_it_is_killed_by_a_signal(start: Start) -> None:
    for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        process, log = start("import time\nprint('up', flush=True)\ntime.sleep(600)")
        while not log.read_text():
            time.sleep(0.001)
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(number)
        assert process.wait(300) == -number


def test_it_is_a_zombie_until_it_is_waited_for(start: Start) -> None:
    process, _ = start("pass")
    stat = Path(f"/proc/{process.pid}/stat")
    while stat.read_text().split()[2] != "Z":
        time.sleep(0.001)
    os.kill(process.pid, signal.SIGKILL)  # raises if the process is gone
    assert process.wait(300) == 0
    assert not stat.exists()


def test_it_reads_what_is_written_to_it(start: Start) -> None:
    process, log = start("import sys; print(sys.stdin.read().upper())", stdin=True)
    assert process.stdin is not None
    process.stdin.write(b"abc")
    process.stdin.close()
    assert process.wait(300) == 0
    assert log.read_text() == "ABC\n"


ABOUT = """
import json, multiprocessing, os, resource, signal, sys, threading
import headrace, numpy
print(json.dumps({
    "argv": sys.argv, "path": sys.path, "folder": os.getcwd(), "group": os.getpgid(0), "umask": os.umask(0o22),
    "env": dict(os.environ), "files": sorted(f for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f)),
    "signals": [str(signal.getsignal(s)) for s in signal.valid_signals()], "masked": list(signal.pthread_sigmask(0, [])),
    "names": sorted(globals()), "main": __name__ + str(sys.modules["__main__"].__dict__ is globals()),
    "limits": [resource.getrlimit(n) for n in range(10)], "threads": threading.active_count(),
    "buffered": [sys.stdout.line_buffering, sys.stderr.line_buffering, sys.stdout.encoding, sys.stdin.encoding],
    "trainer": headrace._trainer._BORN == os.getpid(), "flags": str(sys.flags), "worker": str(multiprocessing.parent_process()),
    "modules": sorted(m for m in sys.modules if m.split(".")[0] in ("headrace", "numpy")),
}))
"""  # noqa: E501


def test_it_finds_what_a_started_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = []
    for within in ((), (), ("env",)):
        with (tmp_path / "log").open("wb") as out:
            path = os.pathsep.join(["/a", "/b", os.environ.get("PYTHONPATH", "")])
            env = {**os.environ, "OF_ITS_OWN": "1", "PYTHONPATH": path.rstrip(os.pathsep)}
            process = forking.program(ABOUT, ("a", "b"), env, out, within=within)
        text = (tmp_path / "log").read_text() if process.wait(300) == 0 else pytest.fail((tmp_path / "log").read_text())
        told.append(json.loads(text))
    assert told[0] == told[2]
    assert told[1] == told[2]


def test_two_in_turn_hash_differently(tmp_path: Path) -> None:
    hashes = set()
    for _ in range(2):
        with (tmp_path / "log").open("wb") as out:
            forking.program("print(hash('a'))", (), dict(os.environ), out).wait(300)
        hashes.add((tmp_path / "log").read_text())
    assert len(hashes) == (1 if os.environ.get("PYTHONHASHSEED", "random") != "random" else 2)


def test_variables_that_count_at_the_start_of_a_process_are_obeyed(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as out:
        env = {**os.environ, "PYTHONOPTIMIZE": "2"}
        process = forking.program("import sys; print(sys.flags.optimize)", (), env, out)
    process.wait(300)
    assert (tmp_path / "log").read_text() == "2\n"


@pytest.mark.parametrize("within", [(), ("env",)])
def test_print_writes_a_line_at_once_whatever_the_environment_says(tmp_path: Path, within: tuple[str, ...]) -> None:
    with (tmp_path / "log").open("wb") as out:
        env = {**os.environ, "PYTHONUNBUFFERED": "1"}
        process = forking.program("import sys; print(sys.stdout.write_through)", (), env, out, within=within)
    process.wait(300)
    assert (tmp_path / "log").read_text() == "False\n"
