"""How the chaos test's own trainers end. A trainer that only lost its agent ends with a status of
its own: it is started again, and the run does not count as failed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from agent import CALL, Agent, poll
from ports import free_port

HOME = Path(__file__).parents[3] / "internal" / "proof" / "chaos"
LEFT, NO_AGENT = 7, 4


def start(folder: str, name: str, code: str = "", **more: Any) -> subprocess.Popen[bytes]:
    """Starts the package as a process, or code in its place."""
    settings = {
        "seed": 1, "journal": os.path.join(folder, name), "sizes": [[100, 1]], "trap": None, "rank": 0, "leaves": False,
        "checkpoints": os.path.join(folder, "ck"), "archive": os.path.join(folder, "ck"), "saves": "save", "keep": 1,
        "sharded": False, "pause": False, "save_every": 1000, "save_timeout": 60, "server_life": 1, "model": "shared",
        "memory": False, "lull": "",
        "slots": [{"dataset": "clicks", "number": 0, "lines": False, "rows": 10, "rate": 1e6, "ack": "step",
                   "max_wait": 0, "closes": False, "tail": "short"}],
        **more,
    }  # fmt: skip
    command = ["-c", code] if code else ["-m", "trainer"]
    env = {**os.environ, "CHAOS_TRAINER": json.dumps(settings)}
    return subprocess.Popen([sys.executable, *command], cwd=HOME, env=env, stderr=subprocess.PIPE)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, str]:
    _, err = process.communicate(timeout=300)
    return process.returncode, err.decode()


def test_a_trainer_that_loses_its_agent_in_its_last_save_is_started_again(
    agents: Callable[..., Agent], folder: str
) -> None:
    port = free_port()
    agent = agents(total=100, ttl_ms=60_000)
    agent.silent = {"ask"}
    server = start(folder, "server", role="server", server=port)
    try:
        # The scripted agent's records lack the check value of the chaos test's input.
        code = "from trainer import reader, __main__; reader.content = lambda b, _: (b['id'], b['id']); __main__.main()"
        trainer = start(folder, "rank-0", code, role="shared", server=port)
        poll(lambda: agent.of(CALL) or trainer.poll() is not None)
        agent.ends_session(left_ms=7000)  # a tenth of the TTL is the margin: it waits for its agent for a second
        agent.kill()
        status, err = ended(trainer)
        assert (status, "Traceback" in err) == (NO_AGENT, False), err
    finally:
        server.kill()
        ended(server)


def test_a_trainer_back_from_memory_with_nothing_left_to_learn_saves_to_storage(
    agents: Callable[..., Agent], folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the broker is never told that the last records are trained."""
    memory = os.path.join(folder, "memory")
    os.mkdir(memory)
    monkeypatch.setenv("HEADRACE_MEMORY_DIR", memory)
    agent = agents(total=30, model="private")
    asked: list[int] = []

    def answer(call: dict[str, Any]) -> dict[str, Any] | None:
        if call["call"] == "persist":
            return {"code": "refused", "reason": "the agent runs as another user"}
        if call["call"] != "ask":
            return None
        asked.append(call["step"])
        body = {**agent.body(call["cut"], call["step"]), "order": str(len(asked))}
        return {"cut": call["cut"], "step": call["step"], "path": call["path"], "body": body}

    agent.answer = answer
    settings = {"role": "private", "model": "private", "memory": True, "save_every": 0, "life": 0, "restored": folder}
    code = "from trainer import reader, __main__; reader.content = lambda b, _: (b['id'], b['id']); __main__.main()"
    # Step 3 is the last one, and is saved to memory only (Saving._save).
    trap = {"point": "sealed", "after": 3, "victims": ["self"]}
    status, err = ended(start(folder, "rank-0", code, trap=trap, **settings))
    assert (status, asked) == (-signal.SIGKILL, [1, 2, 3]), err
    assert not any("step-0000000003" in path for path in agent.bound.values())

    agent.total = 0
    status, err = ended(start(folder, "rank-0-again", code, **settings))
    assert status == 0, err
    assert any("step-0000000003" in path for path in agent.bound.values()), f"{agent.bound}\n{err}"


LEAVES = """
import sys, threading
import headrace
from trainer import reader

def finish():
    if sys.argv[1:]:
        raise headrace.AgentUnavailable("it was killed")

reader.finish = finish
thread = threading.Thread(target=reader.Reader(None, None).leave)
thread.start()
thread.join()
"""


@pytest.mark.parametrize(("argument", "status"), [("", LEFT), ("its agent is gone", NO_AGENT)])
def test_the_status_of_a_trainer_says_how_it_ended(folder: str, argument: str, status: int) -> None:
    code = LEAVES.replace("sys.argv[1:]", repr(argument))
    got, err = ended(start(folder, "rank-0", code))
    assert got == status, err
