"""Tests that need a process of their own: kills, forks, exits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import pytest
from agent import BYE, CLOSE, PING, PONG, QUIT, STEP, Agent
from headrace._wire import Bell

Agents = Callable[..., Agent]


def trainer(code: str, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", *options, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


HOLDING = """
import headrace, sys, time
stream = headrace.dataset("clicks").batches(10)
next(stream)
print("holding", flush=True)
time.sleep(100_000)
"""


def test_the_watchdog_ends_a_shared_trainer_whose_agent_is_gone_for_the_ttl(agents: Agents) -> None:
    """test_watchdog.py tests at which moment, with invented times."""
    agent = agents(ttl_ms=60_000)
    process = trainer(HOLDING)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    agent.ends_session(left_ms=7000)  # a tenth of the TTL is the agent's margin
    agent.tell(PING, 0, {"t": 1})
    agent.wait(lambda: agent.of(PONG))  # it has heard of both
    agent.kill()
    _, err = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert err.splitlines()[-1].startswith("headrace: ")
    assert "was not heard for" in err


def test_the_watchdog_waits_for_an_agent_that_comes_back(agents: Agents) -> None:
    agent = agents(ttl_ms=20_000)
    process = trainer(HOLDING)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    agent.kill()
    again = agents()
    again.wait(lambda: again.hellos)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(20)  # the TTL of the first agent
    process.kill()
    process.communicate()


def test_the_watchdog_ends_a_shared_trainer_whose_agent_is_silent_when_its_session_ends(agents: Agents) -> None:
    """A short silence is enough: this agent would answer a later PING."""
    agent = agents(ttl_ms=60_000)
    process = trainer(HOLDING)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    agent.ends_session()  # the agent lost its master long ago
    ends = time.monotonic_ns()
    agent.session = lambda ping: agent.ttl_ms if ping["t"] - ends > 10e9 else None
    _, err = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert "was not heard for" in err


def test_who_was_told_to_end_and_does_not_is_ended_when_its_agent_is_silent(agents: Agents) -> None:
    agent = agents(ttl_ms=60_000)
    process = trainer("import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + HOLDING)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    agent.tell(QUIT, 0, {"reason": "the master was not heard for 3s"})
    agent.ends_session()
    _, err = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert "was not heard for" in err


STOPPING = """
import headrace, os, signal, time
stream = headrace.dataset("clicks").batches(10)
next(stream)
print("holding", flush=True)
while time.monotonic() < stream._channel.trust:
    time.sleep(0.01)
print("stops", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
while True:
    next(stream)
    print("yielded", time.monotonic(), flush=True)
    stream.step(batches=stream.unstepped)
"""


# per_frame decides where the next batch is when the process stops: 1: in its socket; 2: in the
# frame that it is already reading.
@pytest.mark.parametrize("per_frame", [1, 2])
@pytest.mark.parametrize("model", ["shared", "private"])
def test_a_trainer_that_wakes_after_its_ttl_yields_nothing_before_its_agent_has_answered(
    agents: Agents, per_frame: int, model: str
) -> None:
    agent = agents(ttl_ms=60_000, per_frame=per_frame, model=model, total=20)
    state, answers = "good", []

    def session(ping: dict[str, Any]) -> int | None:
        if state == "over":
            return 0
        if state == "awake":
            answers.append(time.monotonic())
        return agent.ttl_ms

    agent.session = session
    process = trainer(STOPPING)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    state = "over"
    agent.tell(PONG, 0, {"t": agent.wait(lambda: agent.pings)[-1], "session_ms": 0})
    assert process.stdout.readline() == "stops\n"
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    agent.wait(lambda: agent.streams[1].sent == 2)
    state = "awake"
    process.send_signal(signal.SIGCONT)
    word, when = process.stdout.readline().split()
    process.kill()
    process.communicate()
    assert word == "yielded"
    assert answers, "a batch was yielded, but no PING was answered before"
    assert float(when) >= answers[0]


def test_a_trainer_that_wakes_after_its_ttl_and_finds_no_agent_ends_without_another_batch(agents: Agents) -> None:
    agent = agents(ttl_ms=30_000, per_frame=2)
    process = trainer(STOPPING)
    assert process.stdout is not None
    assert process.stdout.readline() == "holding\n"
    agent.session = lambda ping: 0
    agent.tell(PONG, 0, {"t": agent.wait(lambda: agent.pings)[-1], "session_ms": 0})
    assert process.stdout.readline() == "stops\n"
    assert os.WIFSTOPPED(os.waitpid(process.pid, os.WUNTRACED)[1])
    agent.wait(lambda: agent.streams[1].sent == 2)
    agent.session = lambda ping: None
    process.send_signal(signal.SIGCONT)
    out, err = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGKILL
    assert out == ""
    assert "was not heard for" in err


def test_quit_ends_the_process(agents: Agents) -> None:
    agent = agents()
    process = trainer(HOLDING)
    assert process.stdout is not None
    process.stdout.readline()
    agent.tell(QUIT, 0, {"reason": "no progress for 10m"})
    _, err = process.communicate(timeout=300)
    assert process.returncode == -signal.SIGTERM
    assert "no progress for 10m" in err


def test_an_exit_sends_what_was_stepped_and_says_bye(agents: Agents) -> None:
    agent = agents()
    process = trainer(
        "import headrace\nstream = headrace.dataset('clicks').batches(10)\nnext(stream)\nstream.step()\nstream.close()"
    )
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out, err) == (0, "", "")
    agent.wait(lambda: agent.of(BYE))
    assert [t for t, _, _ in agent.heard if t in (STEP, CLOSE, BYE)] == [STEP, CLOSE, BYE]


def test_an_exit_with_unstepped_batches_warns(agents: Agents) -> None:
    agents()
    code = "import headrace\nstream = headrace.dataset('clicks').batches(10)\nnext(stream)"
    process = trainer(code, "-W", "default")
    _, err = process.communicate(timeout=300)
    assert process.returncode == 0
    assert "10 rows in 1 batch of 'clicks'" in err


FORK = """
import headrace, os, sys
stream = headrace.dataset("clicks").batches(10)
next(stream)
pid = os.fork()
if pid == 0:
    for call in (lambda: next(stream), stream.step, lambda: headrace.dataset("clicks").batches(10), headrace.init):
        try:
            call()
        except headrace.HeadraceError as error:
            assert "num_workers=0" in str(error), error
        else:
            os._exit(1)
    stream.close()
    sys.exit(0)
assert os.waitpid(pid, 0)[1] == 0
stream.step()
assert len(next(stream)) == 10
stream.step()
stream.close()
"""


def test_a_trainer_that_forks_keeps_its_stream_and_the_child_gets_none(agents: Agents) -> None:
    agent = agents()
    process = trainer(FORK, "-W", "ignore::DeprecationWarning")
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")
    agent.wait(lambda: agent.of(BYE))
    assert len(agent.hellos) == 1
    assert [s["through"] for s in agent.of(STEP)] == [1, 2]


PAUSED = """
import headrace, os, sys
stream = headrace.dataset("clicks").batches(10)
with stream.paused("eval"):
    inherited = {int(fd) for fd in os.listdir("/proc/self/fd")}
    pid = os.fork()
    if pid == 0:
        own = [os.open("own", os.O_RDWR | os.O_CREAT) for _ in range(20)]  # some have numbers that were the trainer's
        assert inherited & set(own)
if pid == 0:
    os._exit(os.stat("own").st_size)
assert os.waitpid(pid, 0)[1] == 0
"""


def test_a_forked_child_that_leaves_a_pause_writes_into_no_file_of_its_own(agents: Agents, folder: str) -> None:
    agents()
    process = trainer(f"import os\nos.chdir({folder!r})\n" + PAUSED, "-W", "ignore::DeprecationWarning")
    _, err = process.communicate(timeout=300)
    assert (process.returncode, err) == (0, "")


def test_a_ring_after_the_end_is_written_into_no_file_that_has_its_number_now(folder: str) -> None:
    bell = Bell()
    bell.close()
    with open(f"{folder}/a", "wb") as a, open(f"{folder}/b", "wb") as b:
        bell.ring()
        bell.wait(None, False, 0)
        assert (os.fstat(a.fileno()).st_size, os.fstat(b.fileno()).st_size) == (0, 0)


def test_the_end_of_a_trainer_is_seen_though_its_child_lives(agents: Agents, folder: str) -> None:
    """A forked child closes the sockets that it inherits, so that the agent sees its trainer's end at once."""
    agent = agents()
    code = (
        "import headrace, os, time\n"
        "stream = headrace.dataset('clicks').batches(10)\nnext(stream)\n"
        "child = os.fork()\nif child == 0:\n    time.sleep(100_000)\n"
        "print(child, flush=True)\nos.kill(os.getpid(), 9)\n"
    )
    process = trainer(code, "-W", "ignore::DeprecationWarning")
    assert process.stdout is not None
    child = int(process.stdout.readline())
    try:
        process.wait(300)
        agent.wait(lambda: agent.closed == 2)
    finally:
        os.kill(child, signal.SIGKILL)
        process.communicate()


POOL = """
import multiprocessing as mp, sys

def work(explicit):
    import headrace
    if explicit:
        headrace.init(rank=0, world_size=1)
    try:
        headrace.dataset("clicks").batches(10).close()
        return "opened"
    except headrace.HeadraceError as error:
        return str(error)

if __name__ == "__main__":
    with mp.get_context(sys.argv[1]).Pool(1) as pool:
        print(pool.apply(work, (False,)))
        print(pool.apply(work, (True,)))
"""


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_multiprocessing_worker_is_no_trainer_unless_it_says_so(agents: Agents, folder: str, method: str) -> None:
    agents()
    script = Path(folder) / "pool.py"
    script.write_text(POOL)
    out = subprocess.run([sys.executable, str(script), method], capture_output=True, text=True, timeout=300)
    first, second = out.stdout.splitlines()
    assert "num_workers=0" in first
    assert "headrace.init(rank=..., world_size=...)" in first
    assert second == "opened"


def test_a_dataloader_worker_is_told_to_use_none(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    import types

    data = types.ModuleType("torch.utils.data")
    data.get_worker_info = lambda: object()
    monkeypatch.setitem(sys.modules, "torch.utils.data", data)
    agents()
    with pytest.raises(headrace.HeadraceError, match=r"DataLoader's worker: use num_workers=0"):
        headrace.dataset("clicks").batches(10)


def test_ctrl_c_ends_a_waiting_trainer(agents: Agents) -> None:
    agent = agents()
    agent.hold = True
    code = (
        "import headrace, signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with SIGINT ignored\n"
        "with headrace.dataset('clicks').batches(10) as stream:\n"
        "    print('waiting', flush=True)\n    next(stream)\n"
    )
    process = trainer(code)
    assert process.stdout is not None
    process.stdout.readline()
    agent.wait(lambda: agent.credits)
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert err.rstrip().endswith("KeyboardInterrupt")
    agent.wait(lambda: agent.of(BYE))


@pytest.mark.parametrize(
    ("error", "noted"),
    [("headrace.CheckpointError('it is damaged')", "CheckpointError: it is damaged"), ("ValueError('x')", None)],
)
def test_an_error_of_a_checkpoint_is_noted_for_who_starts_trainers(error: str, noted: str | None, folder: str) -> None:
    note = Path(folder) / "note"
    process = subprocess.run(
        [sys.executable, "-c", f"import headrace\nraise {error}"],
        env={**os.environ, "HEADRACE_ENDED_BY": str(note)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert process.returncode == 1
    assert process.stderr.count("Traceback") == 1
    assert (note.read_text() if note.exists() else None) == noted


def test_a_program_for_one_process_refuses_several_ranks(agents: Agents) -> None:
    agents(model="replicated")
    with pytest.raises(SystemExit) as refused:
        headrace.init(rank=1, world_size=2, alone=True)
    said = str(refused.value.code)
    assert said.startswith(
        "rank 1 of 2: this program trains one model in one process. Start one, with --nproc-per-node 1."
    )
    assert "docs/torch.md" in said
    assert "docs/tensorflow.md#parameter-servers" in said
    with pytest.raises(SystemExit):  # again, now that the process is attached
        headrace.init(alone=True)


@pytest.mark.parametrize(("model", "ranks"), [("private", 2), ("replicated", 1), ("shared", 1)])
def test_one_process_or_a_model_for_each_rank_is_alone(agents: Agents, model: str, ranks: int) -> None:
    agents(model=model)
    trainer = headrace.init(world_size=ranks, alone=True)
    assert trainer.world_size == ranks
    assert headrace.init() is trainer
