"""Stream.ready() says whether next() would return at once, so that a loop can save while its input is silent."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import headrace
import pytest
from agent import CREDIT, ERROR, STEP, Agent, poll
from headrace import _feed

Agents = Callable[..., Agent]
LONG = 600.0  # seconds; no test here waits so long


def test_nothing_has_come_and_then_a_batch_and_then_the_end(agents: Agents, way: dict[str, int]) -> None:
    agent = agents(total=30, per_frame=2, **way)
    agent.hold = True
    ids = []
    with headrace.dataset("clicks").batches(10) as stream:
        assert not stream.ready()
        assert not stream.ready(0.01)
        agent.wait(lambda: agent.of(CREDIT))
        agent.release()
        for _ in range(3):
            assert stream.ready(LONG)
            assert stream.ready(0)
            assert stream.unstepped == 0, "ready() yields nothing"
            ids += next(stream)["id"].tolist()
            stream.step()
        assert stream.ready(LONG), "at the end next() does not wait"
        assert next(stream, None) is None
        assert stream.ready()
    assert ids == list(range(30))


def test_a_loop_that_only_looks_gets_every_record_once(agents: Agents, way: dict[str, int]) -> None:
    agent = agents(total=1000, per_frame=3, **way)
    agent.hold = True  # until ready() has said False once
    ids, looks = [], 0
    with headrace.dataset("clicks").batches(64) as stream:
        while True:
            while not stream.ready():
                looks += 1
                if agent.hold:
                    agent.release()
            b = next(stream, None)
            if b is None:
                break
            ids += b["id"].tolist()
            stream.step()
    assert ids == list(range(1000))
    assert looks


def test_with_rounds_all_ranks_must_have_the_batch(agents: Agents) -> None:
    agent = agents(model="replicated", total=50, per_frame=2)
    headrace.init(rank=0, world_size=1)
    agent.hold = True
    rows = 0
    with headrace.dataset("clicks").batches(10, rounds=True) as stream:
        assert not stream.ready(0.01)
        agent.wait(lambda: agent.of(CREDIT))
        agent.release()
        for number in range(1, 6):
            assert stream.ready(LONG)
            rows += len(next(stream))
            stream.step(number)
    assert rows == 50


def test_an_agent_that_is_away_is_silent_too(agents: Agents) -> None:
    agent = agents(total=300)
    with headrace.dataset("clicks").batches(10) as stream:
        assert stream.ready(LONG)
        ids = next(stream)["id"].tolist()
        stream.step()
        agent.holds()
        while stream.stats().batches < agent.streams[1].sent:  # takes what the agent had sent before
            assert stream.ready(LONG)
            ids += next(stream)["id"].tolist()
            stream.step()
        agent.kill()
        poll(lambda: not stream._channel.connection)
        assert not stream.ready(0.01)
        later = agents(total=300)
        assert stream.ready(LONG)
        ids += next(stream)["id"].tolist()
        stream.step()
        later.wait(lambda: later.of(STEP))
    assert ids == list(range(len(ids)))


def test_an_agent_that_drops_a_connection_without_a_reason_is_named_in_the_end(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if each call of ready() waits only for a moment."""
    monkeypatch.setattr(_feed, "NOTICE_SECONDS", 0.2)
    agent = agents(total=300)
    agent.hold = True
    with headrace.dataset("clicks").batches(10) as stream:
        assert not stream.ready(0.01)
        agent.wait(lambda: agent.streams and agent.streams[1].data)
        data = agent.streams[1].data
        assert data is not None
        data.shutdown(2)
        with pytest.raises(headrace.AgentUnavailable, match="closed the data connection of a stream"):
            while not stream.ready(0.01):
                pass


def test_it_raises_what_next_raises(agents: Agents) -> None:
    agent = agents()
    agent.hold = True
    stream = headrace.dataset("clicks").batches(10)
    with pytest.raises(ValueError, match="seconds=-1"):
        stream.ready(-1)
    assert not stream.ready(0.01)
    agent.wait(lambda: agent.streams[1].data)
    agent.tell_data(1, ERROR, {"code": "failed", "message": "bad", "hint": "fix"})
    with pytest.raises(headrace.DatasetError, match="bad: fix"):
        stream.ready(LONG)
    stream.close()
    with headrace.dataset("clicks").batches(10) as other:
        pass
    with pytest.raises(headrace.HeadraceError, match="closed"):
        other.ready()


def test_one_thread_asks_at_a_time(agents: Agents) -> None:
    agent = agents()
    agent.hold = True
    with headrace.dataset("clicks").batches(10) as stream:
        found: list[Any] = []
        waits = threading.Thread(target=lambda: found.append(stream.ready(LONG)))
        waits.start()
        poll(lambda: stream._channel.waiting)
        with pytest.raises(headrace.HeadraceError, match="two threads ask this stream"):
            next(stream)
        agent.wait(lambda: agent.of(CREDIT))
        agent.release()
        waits.join()
        assert found == [True]
        assert next(stream)["id"].tolist() == list(range(10))
        stream.step()


def test_with_auto_the_last_batch_is_reported(agents: Agents) -> None:
    """A save while the input is silent then includes it."""
    agent = agents()
    with headrace.dataset("clicks").batches(10, ack="auto") as stream:
        next(stream)
        agent.hold = True
        stream.ready()
        agent.wait(lambda: [s["through"] for s in agent.of(STEP)] == [1])
