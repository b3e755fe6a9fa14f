"""The process's one attachment: greeting, fences, an agent that comes back."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import headrace
import numpy as np
import pytest
from agent import ACKED, BYE, ERROR, FENCED, HEADER, HELLO, PING, PONG, STEP, Agent, poll
from headrace import _control, _outbox, _trainer
from headrace._control import Control
from headrace._messages import Message
from headrace._settings import resolve
from headrace._watchdog import Watchdog

Agents = Callable[..., Agent]


def test_hello_says_who_we_are(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "2")
    agent = agents(model="private")
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    trainer = headrace.init("demo", rank=1, world_size=3)
    (hello,) = agent.hellos
    assert before <= hello.pop("made_ns") <= time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    assert hello == {
        "protocol": 1, "client": f"headrace-python {headrace.__version__}", "job": "demo", "rank": 1, "world_size": 3,
        "local_rank": 0, "attempt": 2, "incarnation": trainer.incarnation, "pid": os.getpid(), "generation": 0,
        "resume_from": "",
    }  # fmt: skip
    assert len(trainer.incarnation) == 16
    assert (trainer.job, trainer.model, trainer.generation, trainer.agent) == ("demo", "private", 4, "a1")
    assert headrace.init() is trainer
    assert headrace.init("demo", rank=1, world_size=3) is trainer
    with pytest.raises(headrace.HeadraceError, match="rank 1 of job 'demo' already"):
        headrace.init(rank=2, world_size=3)


def test_without_an_agent_the_error_names_the_command(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_AGENT", f"{folder}/none.sock")
    with pytest.raises(headrace.AgentUnavailable, match=r"none.sock \(No such file.*`headrace up`.*`headrace run -- "):
        headrace.dataset("clicks").batches(1)
    with pytest.raises(headrace.AgentUnavailable, match="`headrace agent --master m:7070`"):
        headrace.init(master="m:7070")


def test_a_trainer_that_starts_while_its_agent_is_started_again_waits_for_it(
    agents: Agents, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_trainer, "AGENT_BACK_SECONDS", 60.0)
    path = f"{folder}/a.sock"

    def dies_of_hello() -> None:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            bound.set()
            with listener.accept()[0] as connection:
                connection.recv(1 << 16)
        os.unlink(path)  # a new agent removes the old one's socket before it makes its own
        agents()

    bound = threading.Event()
    thread = threading.Thread(target=dies_of_hello)
    thread.start()
    assert bound.wait(300)
    assert headrace.init().agent == "a1"
    thread.join()


def test_an_agent_that_stays_away_is_reported(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_trainer, "AGENT_BACK_SECONDS", 0.2)
    monkeypatch.setenv("HEADRACE_AGENT", f"{folder}/left.sock")
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(f"{folder}/left.sock")
    with pytest.raises(headrace.AgentUnavailable, match=r"left.sock \(Connection refused\).*`headrace up`"):
        headrace.init()


def test_another_protocol_is_refused_by_either_side(agents: Agents) -> None:
    agent = agents(protocol=9)
    with pytest.raises(headrace.ProtocolError, match="speaks protocol 9, this client 1"):
        headrace.init()
    agent.protocol = 1
    agent.refuse = lambda hello: {"code": "protocol", "message": "client is too old", "hint": "upgrade"}
    with pytest.raises(headrace.ProtocolError, match="too old: upgrade"):
        headrace.init()


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("refused", headrace.Fenced),
        ("job", headrace.HeadraceError),
        ("unavailable", headrace.AgentUnavailable),
    ],
)
def test_a_refused_hello_raises_what_it_means(agents: Agents, code: str, error: type[Exception]) -> None:
    agents(refuse=lambda hello: {"code": code, "message": "no", "hint": "because"})
    with pytest.raises(error, match="no: because"):
        headrace.init()


def test_bytes_that_are_no_message_raise_protocol_error(folder: str) -> None:
    path = f"{folder}/odd.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(HEADER.pack(5, 99, 0, 0, 0) + b"hello")
                connection.recv(1 << 16)

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(headrace.ProtocolError, match="type 99"):
            headrace.init(agent=path)
        thread.join()


def test_fenced_is_raised_by_the_next_call_of_any_kind(agents: Agents) -> None:
    agent = agents()
    stream = headrace.dataset("clicks").batches(10)
    next(stream)
    agent.tell(FENCED, 0, {"reason": "a newer incarnation of rank 0"})
    poll(lambda: stream._channel.fault)
    for call in (stream.step, lambda: next(stream), lambda: headrace.dataset("other").batches(10)):
        with pytest.raises(headrace.Fenced, match="a newer incarnation of rank 0"):
            call()
    with pytest.warns(headrace.UnsteppedWarning):
        stream.close()


def test_fenced_wakes_a_waiting_next(agents: Agents) -> None:
    agent = agents()
    agent.hold = True
    with headrace.dataset("clicks").batches(10) as stream:
        threading.Timer(0.05, agent.tell, (FENCED, 0, {"reason": "gone"})).start()
        with pytest.raises(headrace.Fenced, match="gone"):
            next(stream)


def test_a_refused_step_fences_the_stream(agents: Agents) -> None:
    agent = agents(ack=False)
    stream = headrace.dataset("clicks").batches(10)
    next(stream)
    stream.step()
    agent.wait(lambda: agent.of(STEP))
    agent.tell(ERROR, 1, {"code": "refused", "message": "stale token", "hint": ""})
    poll(lambda: stream._channel.fault)
    with pytest.raises(headrace.Fenced, match="stale token"):
        stream.step(batches=0)
    stream.close()


def test_an_agents_ping_is_answered(agents: Agents) -> None:
    agent = agents()
    headrace.init()
    agent.tell(PING, 0, {"t": 12345})
    agent.wait(lambda: agent.of(PONG) == [{"t": 12345}])


def test_an_agent_that_comes_back_is_told_what_we_hold(agents: Agents) -> None:
    first = agents(total=100, per_frame=2, ack=False)
    stream = headrace.dataset("clicks").batches(10)
    ids = [next(stream)["id"] for _ in range(3)]
    stream.step(5, batches=2)
    first.wait(lambda: first.of(STEP))
    first.tell(ACKED, 1, {"through": 1})
    poll(lambda: stream.stats().durable == 1)
    received = stream._channel.received
    first.kill()
    second = agents(total=100, per_frame=2)
    second.wait(lambda: second.hellos)
    (hello,) = second.hellos
    assert hello["generation"] == 4
    assert hello["incarnation"] == first.hellos[0]["incarnation"]
    (entry,) = hello["resume"]
    assert (entry["stream"], entry["through"], entry["acked"]) == (1, 2, 1)
    assert entry["open"]["dataset"] == "clicks"
    assert [(b["number"], b["step"], b["rows"]) for b in entry["batches"]] == [
        (n, 5 if n == 2 else None, 10) for n in range(2, received + 1)
    ]
    for b in entry["batches"]:
        n = b["number"]
        assert b["spans"] == [[1, 2, 40, 3, 7, 1, 5, 100 * (n - 1), 100 * n, 10, 0, 0]]
    for b in stream:
        ids.append(b["id"])
        stream.step(batches=stream.unstepped)
    assert np.array_equal(np.concatenate(ids), np.arange(100))
    stream.close()


def test_steps_said_while_the_agent_is_away_arrive_once(agents: Agents) -> None:
    first = agents(total=1000, per_frame=8)
    stream = headrace.dataset("clicks").batches(10)
    for _ in range(20):
        next(stream)
        stream.step()
    first.wait(lambda: first.streams[1].through == 20)
    poll(lambda: stream.stats().durable == 20)
    first.kill()
    ahead = stream._channel.received - 20
    for _ in range(min(ahead, 2)):
        next(stream)
        stream.step()
    second = agents(total=1000)
    rows = sum(len(b) for b in iter(lambda: _stepped(stream), None))
    stream.close()
    assert rows == 1000 - 200 - 10 * min(ahead, 2)
    (entry,) = second.hellos[0]["resume"]
    replayed = sum(b["step"] is not None for b in entry["batches"])
    assert replayed + sum(s["batches"] for s in second.of(STEP)) == 80


def _stepped(stream: headrace.Stream) -> Any:
    b = next(stream, None)
    if b is not None:
        stream.step()
    return b


@pytest.mark.parametrize("known", [True, False], ids=["runs", "an agent that knows none"])
def test_steps_in_quick_succession_leave_together_and_each_is_reported(
    agents: Agents, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    monkeypatch.setattr(_outbox, "THICK", float("inf"))
    agent = agents(model="replicated", total=1000, per_frame=30, ttl_ms=60_000, step_runs=known)
    stream = headrace.dataset("clicks").batches(10)
    control = headrace.init().control
    turn, busy, go_on = control._send, threading.Event(), threading.Event()

    def send(*args: Any) -> None:  # keeps the control thread busy until go_on
        busy.set()
        assert go_on.wait(300)
        turn(*args)

    monkeypatch.setattr(control, "_send", send)
    control.bell.ring()
    assert busy.wait(300)
    for _ in range(5):
        next(stream)
        stream.step()
    next(stream)
    stream.step(10)
    next(stream), next(stream)
    stream.step(11, batches=2)
    for _ in range(2):
        next(stream), next(stream)
        stream.step(batches=2)
    go_on.set()
    agent.wait(lambda: agent.streams[1].through == 12)
    said = [(s["step"], s["batches"], s["through"]) for s in agent.of(STEP)]
    assert said == [*((n, 1, n) for n in range(1, 6)), (10, 1, 6), (11, 2, 8), (12, 2, 10), (13, 2, 12)]
    assert agent.runs == ([5, 1, 3] if known else [1] * 9)
    stream.close()


def test_a_call_while_steps_gather_is_answered_at_once(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_outbox, "THICK", float("inf"))
    monkeypatch.setattr(_control, "LINGER", 3600.0)
    agent = agents(model="replicated", ttl_ms=3_600_000)
    stream = headrace.dataset("clicks").batches(10)
    for n in range(1, 4):
        next(stream)
        stream.step()
        assert stream.state_dict()["step"] == n  # the steps left at once: LINGER is an hour
    assert [s["through"] for s in agent.of(STEP)] == [1, 2, 3]
    stream.close()


@pytest.mark.parametrize(("model", "seconds"), [("shared", 0.01), ("replicated", 0.05), ("private", 0.05)])
def test_steps_of_a_shared_model_gather_for_a_shorter_time(agents: Agents, model: str, seconds: float) -> None:
    agents(model=model)
    assert headrace.init().control.outbox.linger == seconds


def test_batches_of_steps_that_gathered_are_each_resumed_with_their_own_step(agents: Agents) -> None:
    agents()
    one, run = headrace.dataset("clicks").batches(10), headrace.dataset("clicks").batches(10)
    for stream in (one, run):
        for _ in range(6):
            next(stream)
        stream._channel.stepped = 6
    for n in range(1, 7):
        one._channel.said(n + 4, 1, n, 1)
    run._channel.said(8, 1, 4, 4)
    run._channel.said(8, 1, 4, 4)  # again: a signal's exception followed the first time
    run._channel.said(10, 1, 6, 2)
    steps = [[b["step"] for b in s._channel.resume()["batches"]][:6] for s in (one, run)]
    assert steps == [[5, 6, 7, 8, 9, 10]] * 2
    for stream in (one, run):
        stream._channel.reported.clear()
        stream._channel.stepped = 0
        with pytest.warns(headrace.UnsteppedWarning):
            stream.close()


def test_agents_killed_again_and_again_lose_and_repeat_nothing(agents: Agents) -> None:
    agent = agents(total=4000, per_frame=3)
    done = threading.Event()

    def killer() -> None:
        nonlocal agent
        while not done.wait(0.15):
            if not agent.of(STEP):
                continue  # a kill before the trainer has found the agent tests nothing
            agent.kill()
            agent = agents(total=4000, per_frame=3)

    thread = threading.Thread(target=killer)
    thread.start()
    ids: list[int] = []
    try:
        with headrace.dataset("clicks").batches(10) as stream:
            for b in stream:
                ids.extend(b["id"].tolist())
                time.sleep(0.002)  # the trainer's own work
                stream.step()
    finally:
        done.set()
        thread.join()
    assert ids == list(range(4000))


def test_an_idle_ranks_step_is_said_again_to_a_new_agent(agents: Agents) -> None:
    first = agents(model="replicated", ack=False)
    headrace.init(rank=0, world_size=2)
    stream = headrace.dataset("clicks").batches(10)
    stream.step(9, batches=0)
    first.wait(lambda: first.of(STEP))
    first.kill()
    second = agents(model="replicated")
    second.wait(lambda: second.of(STEP) == [{"step": 9, "batches": 0, "through": 0}])
    stream.close()


def test_a_stream_that_a_returning_agent_refuses_is_fenced(agents: Agents) -> None:
    first = agents()
    stream = headrace.dataset("clicks").batches(10)
    next(stream)
    first.kill()
    agents(resumed=lambda entry: {"refused": True, "reason": "its rows were given to rank 2"})
    poll(lambda: stream._channel.fault)
    with pytest.raises(headrace.Fenced, match="given to rank 2"):
        stream.step()
    with pytest.warns(headrace.UnsteppedWarning):
        stream.close()


@pytest.mark.parametrize("model", ["replicated", "private"])
def test_when_no_agent_comes_back_the_next_call_raises_fenced(agents: Agents, model: str) -> None:
    agent = agents(model=model, ttl_ms=500)
    with pytest.raises(headrace.Fenced, match=r"was not heard for \d"):
        with headrace.dataset("clicks").batches(10) as stream:
            next(stream)
            agent.kill()
            poll(lambda: stream._channel.fault)
            stream.step(1)


class Answered:
    """A connection with an unread PONG in its socket."""

    sock, pending = None, False

    def __init__(self, sent: float) -> None:
        self.pong = [Message(PONG, 0, {"t": int(sent * 1e9), "session_ms": 4000})]

    def receive(self) -> list[Message]:
        come, self.pong = self.pong, []
        return come

    def send(self, data: bytes) -> None: ...

    flush = close = lambda self: None


def test_an_answer_that_has_come_is_heard_before_the_agent_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter was busy for two seconds: the agent was not silent."""
    control = Control(resolve(env={}), {}, {})
    now = time.monotonic()
    control.welcome = {"model": "shared"}
    dog = control.trust.watchdog = Watchdog(5.0, now - 4, shared=True)
    dog.sent(now - 4)
    dog.answered(now - 4, 3.5)
    assert not dog.expired(now - 2, connected=True)
    dog.sent(now - 2)
    monkeypatch.setattr(control.outbox, "connection", Answered(now - 2))
    control.bell.ring()
    assert not control._turn()
    assert control.fault is None
    assert dog.heard == pytest.approx(now - 2)


def test_an_agent_that_hangs_counts_as_gone(agents: Agents) -> None:
    agent = agents(model="private", ttl_ms=2000)
    with pytest.raises(headrace.Fenced, match="was not heard"):
        with headrace.dataset("clicks").batches(10) as stream:
            next(stream)
            stream.step()
            agent.pong = False
            agent.hold = True
            while True:
                next(stream)
                stream.step()


def test_a_shared_trainer_that_holds_nothing_outlives_its_agent(agents: Agents) -> None:
    agent = agents(ttl_ms=3000)
    with headrace.dataset("clicks").batches(50) as stream:
        for _ in stream:
            stream.step()
    trainer = headrace.init()
    agent.kill()
    poll(lambda: trainer.control.fault)
    agents()
    assert headrace.init() is not trainer
    with headrace.dataset("clicks").batches(50) as stream:
        assert len(next(stream)) == 50
        stream.step()


def test_shutdown_says_bye_and_init_may_come_again(agents: Agents) -> None:
    agent = agents()
    one = headrace.init().incarnation
    headrace.shutdown()
    headrace.shutdown()
    agent.wait(lambda: agent.of(BYE))
    assert headrace.init().incarnation != one
    assert len(agent.of(HELLO)) == 2
