"""Code that runs in the middle of a call of ours, in the same thread: what the garbage collector ends, and
the program's signal handlers. The thread may hold our locks then."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import headrace
import pytest
from agent import CLOSE, PAUSE, STEP, Agent
from headrace import _trainer
from headrace._steps import Steps

Agents = Callable[..., Agent]


def dropped() -> Iterator[Any]:
    stream = headrace.dataset("other").batches(10)
    next(stream)
    yield stream


def in_with() -> Iterator[Any]:
    with headrace.dataset("other").batches(10) as stream:
        yield stream


def paused() -> Iterator[Any]:
    stream = headrace.dataset("other").batches(10)
    keep.append(stream)
    with stream.paused("eval"):
        yield stream


keep: list[Any] = []


@pytest.mark.filterwarnings("ignore::headrace.UnsteppedWarning")
@pytest.mark.parametrize("held", ["the control's lock", "the stream's lock", "another stream's lock"])
@pytest.mark.parametrize(("make", "told"), [(dropped, CLOSE), (in_with, CLOSE), (paused, PAUSE)])
def test_garbage_that_is_collected_in_a_thread_with_a_lock_is_ended(
    agents: Agents, make: Callable[[], Iterator[Any]], told: int, held: str
) -> None:
    agent = agents(total=1000)
    gc.collect()
    gc.disable()
    try:
        with headrace.dataset("clicks").batches(10) as stream:
            trainer = headrace.init()
            begun = make()
            other = next(begun)._channel
            cycle: list[Any] = [begun]
            cycle.append(cycle)  # as a traceback is one that a local variable keeps
            before = len(agent.of(told))
            del begun, cycle
            locks = {
                "the control's lock": trainer.control.lock,
                "the stream's lock": other.lock,
                "another stream's lock": stream._channel.lock,
            }

            def collect() -> None:
                with locks[held]:
                    gc.collect()
                collected.set()

            collected = threading.Event()
            threading.Thread(target=collect, daemon=True).start()
            assert collected.wait(300), "the thread waits for a lock that it holds"
            agent.wait(lambda: len(agent.of(told)) > before)
            next(stream)
            stream.step()
    finally:
        gc.enable()
        for left in keep:
            left.close()
        keep.clear()


def test_a_stream_that_was_dropped_is_closed_before_the_next_call_counts_its_batches(agents: Agents) -> None:
    agents(total=1000)
    stream = headrace.dataset("clicks").batches(10)
    next(stream)
    with pytest.warns(headrace.UnsteppedWarning, match="10 rows in 1 batch of 'clicks'") as warned:
        del stream
    assert warned[0].filename == __file__
    headrace.init().check_stepped()


def interrupt(trainer: Any, do: Callable[[], Any]) -> None:
    """Lets a signal come in the middle of the next step(), with a handler that does this."""
    real = trainer.control.outbox.step_sent

    def step_sent() -> bool:
        trainer.control.outbox.step_sent = real
        before = signal.signal(signal.SIGUSR1, lambda *_: do())
        try:
            signal.raise_signal(signal.SIGUSR1)
        finally:
            signal.signal(signal.SIGUSR1, before)
        return bool(real())

    trainer.control.outbox.step_sent = step_sent


@pytest.mark.parametrize("what", ["step", "batches", "shutdown", "save"])
def test_a_signal_handler_in_the_middle_of_a_step_is_told_to_set_a_flag(agents: Agents, what: str) -> None:
    agent = agents(total=1000)
    with headrace.dataset("clicks").batches(10) as stream:
        trainer = headrace.init()
        next(stream)
        handlers: dict[str, Callable[[], Any]] = {
            "step": lambda: stream.step(batches=0),
            "batches": lambda: headrace.dataset("clicks").batches(10),
            "shutdown": headrace.shutdown,
            "save": lambda: stream.state_dict(),
        }
        interrupt(trainer, handlers[what])
        with pytest.raises(headrace.HeadraceError, match=r"nothing was done.*set a flag"):
            stream.step()
        assert (stream.unstepped, trainer.last_step) == (0, 1)
        next(stream)
        assert stream.step() == 2
    agent.wait(lambda: agent.of(STEP) and agent.of(STEP)[-1]["through"] == 2)


def test_a_signal_handler_in_the_middle_of_a_step_may_close_the_stream(agents: Agents) -> None:
    agent = agents(total=1000)
    stream = headrace.dataset("clicks").batches(10)
    next(stream)
    interrupt(headrace.init(), stream.close)
    assert stream.step() == 1
    agent.wait(lambda: agent.of(CLOSE))
    with pytest.raises(headrace.HeadraceError, match="closed"):
        next(stream)


def test_a_signal_handler_in_init_is_told_so(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    agents()
    real = _trainer.Trainer.__init__

    def init(self: Any, settings: Any) -> None:
        with pytest.raises(headrace.HeadraceError, match=r"shutdown\(\) was called while"):
            headrace.shutdown()  # as a handler does that the signal calls here
        real(self, settings)

    monkeypatch.setattr(_trainer.Trainer, "__init__", init)
    assert headrace.init().agent == "a1"


class InterruptAfter:
    """Raises KeyboardInterrupt after the n-th call of C code that the code of step() makes: there CPython runs signal
    handlers."""

    def __init__(self, call: int) -> None:
        self._left = call

    def __enter__(self) -> None:
        sys.setprofile(self._profile)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "c_return" and Path(frame.f_code.co_filename).name in ("_trainer.py", "_outbox.py"):
            self._left -= 1
            if self._left == 0:
                raise KeyboardInterrupt


@pytest.mark.parametrize("streams", [1, 2])
def test_a_step_that_was_interrupted_was_said_as_a_whole_or_can_be_said_again(agents: Agents, streams: int) -> None:
    agents(total=10_000, per_frame=16, model="private")
    trainer = headrace.init()
    dataset = headrace.dataset("clicks")
    reader = dataset.batches(10) if streams == 1 else Steps(trainer, dataset._request(10, None, True), [0, 1])
    step = again = 0
    with reader:
        while True:
            next(reader)
            step += 1
            try:
                with InterruptAfter(step):
                    reader.step(step)
                break
            except KeyboardInterrupt:
                assert (reader.unstepped, trainer.last_step) in ((0, step), (streams, step - 1))
                if reader.unstepped:
                    assert reader.step(step) == step
                    again += 1
    assert again
    assert step > again + 1
