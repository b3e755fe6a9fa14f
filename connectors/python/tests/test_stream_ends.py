"""How a stream ends: by leaving the loop, by close(), by losing its last reference, at the end of data, and with
its process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import headrace
import pytest
from agent import ACKED, BYE, CLOSE, OPEN, STATE, STEP, Agent, poll

Agents = Callable[..., Agent]


def test_leaving_the_loop_with_an_unstepped_batch_warns_with_its_rows(agents: Agents) -> None:
    agents()
    with pytest.warns(headrace.UnsteppedWarning, match=r"20 rows in 2 batches of 'clicks'"):
        with headrace.dataset("clicks").batches(10) as stream:
            next(stream)
            stream.step()
            next(stream), next(stream)


@pytest.mark.filterwarnings("ignore::headrace.UnsteppedWarning")
@pytest.mark.parametrize("close", [lambda stream: stream.close(), lambda stream: headrace.shutdown()])
def test_a_step_after_the_close_is_refused_and_not_lost(
    agents: Agents, close: Callable[[headrace.Stream], None]
) -> None:
    agent = agents()
    stream = headrace.dataset("clicks").batches(10)
    next(stream), next(stream)
    stream.step(batches=1)
    close(stream)
    with pytest.raises(headrace.HeadraceError, match=r"closed.*its rows go to others"):
        stream.step()
    assert stream.unstepped == 1
    agent.wait(lambda: len(agent.of(CLOSE)) == 1)
    assert [s["through"] for s in agent.of(STEP)] == [1]


def test_an_exception_acks_nothing_unstepped_and_does_not_warn(agents: Agents) -> None:
    agent = agents()
    stream = headrace.dataset("clicks").batches(10)
    with pytest.raises(ZeroDivisionError), stream:
        next(stream)
        stream.step()
        next(stream)
        raise ZeroDivisionError
    agent.wait(lambda: agent.of(CLOSE))
    assert [s["through"] for s in agent.of(STEP)] == [1]


def test_a_stream_that_is_dropped_is_closed_with_a_warning(agents: Agents) -> None:
    agent = agents()

    def loop() -> None:
        for _ in headrace.dataset("clicks").batches(10):
            break

    with pytest.warns(headrace.UnsteppedWarning, match="10 rows"):
        loop()
    agent.wait(lambda: agent.of(CLOSE))


def test_a_closed_stream_yields_nothing_more(agents: Agents) -> None:
    agents()
    stream = headrace.dataset("clicks").batches(10)
    next(stream)
    stream.step()
    stream.close()
    stream.close()
    with pytest.raises(headrace.HeadraceError, match="closed"):
        next(stream)


def waiting_reader(stream: Any) -> tuple[threading.Thread, list[BaseException]]:
    """A thread that waits in next(). No batch comes."""
    found: list[BaseException] = []

    def read() -> None:
        try:
            next(stream)
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    while not stream._channel.waiting:
        assert thread.is_alive(), found
        time.sleep(0.001)
    return thread, found


def test_close_ends_a_next_that_waits_for_rows(agents: Agents) -> None:
    """The agent keeps the data connection open, so only close() can wake the thread."""
    agent = agents()
    agent.hold = True
    stream = headrace.dataset("clicks").batches(10)
    thread, found = waiting_reader(stream)
    agent.wait(lambda: agent.credits)
    stream.close()
    thread.join(300)
    assert not thread.is_alive()
    assert [type(error) for error in found] == [headrace.HeadraceError], found
    assert "closed" in str(found[0])


@pytest.mark.parametrize("back", [False, True])
def test_close_ends_a_next_that_waits_for_its_agent(agents: Agents, back: bool) -> None:
    """An agent that comes back knows nothing of a stream that was closed meanwhile."""
    agent = agents()
    agent.hold = True
    stream = headrace.dataset("clicks").batches(10)
    agent.wait(lambda: agent.of(OPEN))
    agent.kill()
    while stream._channel.connection:
        time.sleep(0.001)
    thread, found = waiting_reader(stream)
    stream.close()
    if back:
        later = agents()
        later.wait(lambda: later.hellos)
    thread.join(300)
    assert not thread.is_alive()
    assert [type(error) for error in found] == [headrace.HeadraceError], found
    assert "closed" in str(found[0])
    stream._trainer.control.welcome["ttl_ms"] = 100  # so long shutdown() waits for an agent that does not come back


def test_end_is_the_end_however_often_one_asks(agents: Agents) -> None:
    agents(total=5)
    with headrace.dataset("clicks").batches(10) as stream:
        assert next(stream).last
        stream.step()
        for _ in range(2):
            with pytest.raises(StopIteration):
                next(stream)


def test_waiting_for_an_end_that_only_we_hold_up_is_said(
    agents: Agents, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headrace._advice.STUCK", 0.2)
    agent = agents(total=10)
    stream = headrace.dataset("clicks").batches(10)
    next(stream)
    agent.tell(STATE, 1, {"state": "drained", "reason": ""})
    thread = threading.Thread(target=lambda: next(stream, None))
    thread.start()
    poll(lambda: "holds 1 unstepped" in caplog.text)
    stream.step()
    thread.join(300)
    stream.close()


def test_shutdown_waits_until_steps_are_durable_and_says_bye(agents: Agents) -> None:
    agent = agents(ack=False, ttl_ms=600_000)  # shutdown() waits at most for the TTL
    stream = headrace.dataset("clicks").batches(10)
    next(stream)
    stream.step()
    stream.close()
    agent.wait(lambda: agent.of(STEP))
    told = threading.Event()
    threading.Timer(0.2, lambda: (told.set(), agent.tell(ACKED, 1, {"through": 1}))).start()
    headrace.shutdown()
    assert told.is_set()
    agent.wait(lambda: agent.of(BYE))
    types = [t for t, _, _ in agent.heard if t in (STEP, CLOSE, BYE)]
    assert types == [STEP, CLOSE, BYE]


def test_shutdown_gives_up_after_the_ttl(agents: Agents) -> None:
    agents(ack=False)
    stream = headrace.dataset("clicks").batches(10)
    next(stream)
    stream.step()
    stream.close()
    headrace.init().control.welcome["ttl_ms"] = 2000  # only shutdown() goes by it: the session itself is longer
    began = time.monotonic()
    headrace.shutdown()
    assert time.monotonic() - began > 1.9
