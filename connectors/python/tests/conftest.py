from __future__ import annotations

import os
import random
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import headrace
import pytest
import tearing  # noqa: F401
from agent import Agent

# A shell starts its background jobs with SIGINT ignored, and the programs that they start inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No HEADRACE_* variable is set unless the test sets it. Each test has its own folder for default
    sockets, so that two suites that run side by side never use the same one."""
    for name in list(os.environ):
        if name.startswith(("HEADRACE_", "TORCHELASTIC_")) and name not in ("HEADRACE_BIN", "HEADRACE_SEED"):
            monkeypatch.delenv(name)
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    runtime = tempfile.mkdtemp(prefix="hr-run-", dir="/tmp")
    monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
    yield
    shutil.rmtree(runtime, ignore_errors=True)


@pytest.fixture
def folder() -> Iterator[str]:
    """A folder whose path is short enough for sockets."""
    path = tempfile.mkdtemp(prefix="hr-", dir="/tmp")
    yield path
    shutil.rmtree(path)


@pytest.fixture(params=["socket", "shared"])
def way(request: pytest.FixtureRequest) -> dict[str, int]:
    """How frames come: over the socket, or in shared memory with few regions."""
    return {} if request.param == "socket" else {"regions": 3}


@pytest.fixture
def agents(folder: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Agent]]:
    """Starts scripted agents on one socket, which HEADRACE_AGENT names."""
    path = os.path.join(folder, "a.sock")
    monkeypatch.setenv("HEADRACE_AGENT", path)
    started: list[Agent] = []

    def start(**kwargs: Any) -> Agent:
        started.append(Agent(path, **kwargs))
        return started[-1]

    yield start
    headrace.shutdown()
    for agent in started:
        agent.kill()
        assert not agent.errors, agent.errors


@pytest.fixture
def rng() -> random.Random:
    """A random generator. A test that fails prints its seed; HEADRACE_SEED repeats it."""
    seed = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"HEADRACE_SEED={seed}")
    return random.Random(seed)
