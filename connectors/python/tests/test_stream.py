"""Stream: batches that are yielded, steps, and calls that are refused."""

from __future__ import annotations

import signal
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from agent import CLOSE, ERROR, OPEN, PAUSE, STATE, STATS, STEP, Agent, poll
from headrace import _feed
from headrace._credits import Credits

Agents = Callable[..., Agent]


def test_every_record_is_yielded_once_in_batches_of_exactly_the_asked_rows(agents: Agents, way: dict[str, int]) -> None:
    agent = agents(total=1000, per_frame=3, **way)
    sizes, ids = [], []
    with headrace.dataset("clicks").batches(64) as stream:
        for b in stream:
            sizes.append(len(b))
            ids.append(b["id"])
            stream.step()
    assert sizes == [64] * 15 + [40]
    assert np.array_equal(np.concatenate(ids), np.arange(1000))
    agent.wait(lambda: len(agent.of(CLOSE)) == 1)
    assert [s["through"] for s in agent.of(STEP)] == list(range(1, 17))
    assert [s["step"] for s in agent.of(STEP)] == list(range(1, 17))


def test_open_says_what_was_asked_for(agents: Agents) -> None:
    agent = agents()
    headrace.dataset("clicks").batches(7, columns=("id", "text"), max_wait=0.25, ack="auto", track=False).close()
    assert agent.of(OPEN) == [
        {
            "dataset": "clicks",
            "rows": 7,
            "columns": ["id", "text"],
            "max_wait_ms": 250,
            "ack": "auto",
            "track": False,
        }
    ]


def test_two_threads_in_next_are_told_so(agents: Agents) -> None:
    """It once raised RuntimeError('concurrent poll() invocation')."""
    agents().hold = True
    errors: list[BaseException] = []

    def read() -> None:
        try:
            next(stream)
        except BaseException as e:
            errors.append(e)

    with headrace.dataset("clicks").batches(64) as stream:
        threads = [threading.Thread(target=read) for _ in range(2)]
        threads[0].start()
        poll(lambda: stream._feed._receiver)  # the first thread is connected, and waits
        threads[1].start()
        poll(lambda: errors)
        assert isinstance(errors[0], headrace.HeadraceError)
        assert "two threads ask this stream for batches at the same time" in str(errors[0])
        stream.close()
        for thread in threads:
            thread.join()


def test_an_exact_save_tells_a_thread_that_reads_ahead_from_a_missing_step(agents: Agents, tmp_path: Path) -> None:
    """It once said "call step() first", although the unstepped batches were in a queue and not trained."""
    agents(model="shared")
    with headrace.dataset("clicks").batches(10) as stream, headrace.Checkpointer(tmp_path, stream) as ck:
        thread = threading.Thread(target=lambda: [next(stream) for _ in range(3)])
        thread.start()
        thread.join()
        step = stream.step(batches=1)
        with pytest.raises(ValueError, match=r"2 batches of .* are not stepped.*another thread takes") as e:
            ck.save(step, dict)
        assert "call step() first" not in str(e.value)
        step = stream.step(batches=2)
        next(stream)
        with pytest.raises(ValueError, match=r"1 batch of 'clicks' is not stepped.*call step\(\) first"):
            ck.save(step, dict)
        stream.step()


def test_step_counts_on_from_the_last_reported_step(agents: Agents) -> None:
    agents(last_step=41)
    with headrace.dataset("clicks").batches(50) as stream:
        next(stream)
        assert stream.step() == 42
        next(stream)
        assert stream.step(np.int64(50)) == 50
        assert stream.step(batches=0) == 51


def test_step_must_say_how_many_when_more_than_one_is_unstepped(agents: Agents) -> None:
    agents()
    with headrace.dataset("clicks").batches(10) as stream:
        with pytest.raises(ValueError, match="batches=0"):
            stream.step()
        next(stream), next(stream), next(stream)
        with pytest.raises(ValueError, match=r"3 batches are unstepped.*batches=3"):
            stream.step()
        with pytest.raises(ValueError, match="only 3 are unstepped"):
            stream.step(batches=4)
        with pytest.raises(ValueError, match="0 or more"):
            stream.step(batches=-1)
        assert stream.unstepped == 3
        assert stream.step(batches=2) == 1
        assert stream.step() == 2
        assert stream.unstepped == 0


def test_steps_grow_strictly_over_all_streams_of_the_rank(agents: Agents) -> None:
    agents()
    a, b = headrace.dataset("a").batches(10), headrace.dataset("b").batches(10)
    next(a), next(b)
    assert a.step(5) == 5
    with pytest.raises(ValueError, match="step 5 after step 5"):
        b.step(5)
    assert b.step() == 6
    a.close(), b.close()


@pytest.mark.parametrize(("model", "allowed"), [("shared", True), ("private", True), ("replicated", False)])
def test_default_step_is_refused_where_ranks_must_count_alike(agents: Agents, model: str, allowed: bool) -> None:
    agents(model=model)
    headrace.init(rank=1, world_size=2)
    with headrace.dataset("clicks").batches(10, rounds=False) as stream:
        next(stream)
        if allowed:
            stream.step()
        else:
            with pytest.raises(ValueError, match="say the step"):
                stream.step()
            stream.step(1)


def test_batches_are_done_in_yield_order_and_once(agents: Agents) -> None:
    agents()
    with headrace.dataset("clicks").batches(10) as stream:
        first, second = next(stream), next(stream)
        with pytest.raises(ValueError, match="batch 2 cannot be done now"):
            second.done()
        assert first.done(7) == 7
        with pytest.raises(ValueError, match="once each"):
            first.done(8)
        with pytest.raises(ValueError, match="slice"):
            second.slice(0, 5).done()
        assert second.done() == 8


def test_auto_acks_a_batch_when_the_next_one_is_asked_for(agents: Agents) -> None:
    agent = agents(total=45)
    seen = 0
    with headrace.dataset("clicks").batches(10, ack="auto") as stream:
        for b in stream:
            seen += len(b)
            agent.wait(lambda n=b.number: len(agent.of(STEP)) == n - 1)
    assert seen == 45
    assert [s["through"] for s in agent.of(STEP)] == [1, 2, 3, 4, 5]


def test_auto_refuses_another_thread_and_steps_by_hand(agents: Agents) -> None:
    agents()
    stream = headrace.dataset("clicks").batches(10, ack="auto")
    b = next(stream)
    with pytest.raises(ValueError, match="steps by itself"):
        stream.step()
    with pytest.raises(ValueError, match="steps by itself"):
        b.done()
    caught: list[Exception] = []

    def other() -> None:
        try:
            next(stream)
        except headrace.HeadraceError as error:
            caught.append(error)

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert "thread that opened it" in str(caught[0])
    with pytest.warns(headrace.UnsteppedWarning):
        stream.close()


def test_untracked_streams_send_no_steps_and_warn_of_nothing(agents: Agents) -> None:
    agent = agents(total=100, per_frame=2)
    with headrace.dataset("clicks").batches(10, track=False) as stream:
        for _ in stream:
            assert stream.step() == 0
        assert stream.unstepped == 0
    agent.wait(lambda: agent.of(CLOSE))
    assert agent.of(STEP) == []


def test_hundred_held_batches_keep_their_own_bytes(agents: Agents, way: dict[str, int]) -> None:
    """The buffer of a frame is writable, and is not reused while an array refers to it."""
    agents(total=6400, per_frame=7, **way)
    held: list[dict[str, Any]] = []
    with headrace.dataset("clicks").batches(64) as stream:
        for k, b in enumerate(stream):
            own = {name: b[name] for name in b}
            assert own["id"].flags.writeable
            assert own["tags"].offsets.flags.writeable
            # Change the batch before the next one of the same frame is cut out.
            own["id"] += 1_000_000 * k
            own["dense"] *= 2
            own["tags"].values += 1
            own["tags"].offsets += k
            own["text"].data[:] = k
            own["text"].offsets -= k
            held.append({**own, "mask": b.mask("dense")})
            stream.step()
    assert len(held) == 100
    for k, own in enumerate(held):
        ids = np.arange(64 * k, 64 * k + 64)
        counts = np.concatenate([[0], np.cumsum(ids % 4)])
        text = np.concatenate([[0], np.cumsum([len(f"r{i}") for i in ids])])
        assert np.array_equal(own["id"], ids + 1_000_000 * k)
        assert np.array_equal(own["dense"], ((ids[:, None] + np.array([0, 0.25, 0.5])) * 2).astype(np.float32))
        assert np.array_equal(own["tags"].values, np.repeat(ids, ids % 4) + 1)
        assert np.array_equal(own["tags"].offsets, counts + k)
        assert np.array_equal(own["text"].offsets, text - k)
        assert (own["text"].data == k).all()
        assert np.array_equal(own["mask"], ids[:, None] % np.array([2, 3, 5]) != 0)


class Clock:
    """A clock that moves only when the test moves it, so that no machine is too slow."""

    now = 1.0

    def monotonic(self) -> float:
        return self.now


def test_a_slow_trainer_has_two_batches_out_and_a_fast_one_whole_frames(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(_feed, "time", clock)
    agent = agents(total=20_000, per_frame=64)
    with headrace.dataset("clicks").batches(10) as stream:
        for _ in range(4):
            next(stream)
            clock.now += 0.03  # the trainer's own work
            stream.step()
        ahead = agent.streams[1].sent - stream.stats().batches
        assert ahead <= 2
        for _ in range(1500):
            next(stream)
            clock.now += 1e-5
            stream.step()
        assert max(agent.credits) > 8
        assert sum(agent.credits) - stream.stats().batches <= 2 * 1024


def test_a_stream_without_end_does_not_keep_the_name_of_each_segment(agents: Agents) -> None:
    agent = agents(total=1000)
    agent.names = lambda before: {
        "partitions": {"7": "files:demo"}, "segments": {"7/5": f"day_{before}.tsv", f"7/{before + 10}": "later"},
        **({} if before % 10 else {"anew": True}),
    }  # fmt: skip
    kept, most = [], 0
    with headrace.dataset("clicks").batches(10) as stream:
        for b in stream:
            kept.append(b)
            most = max(most, len(stream._feed._names.segments))
            stream.step()
    assert most == 11
    assert len(kept) == 100
    assert kept[0].ranges[0].name == "day_9.tsv"  # the last one that was told before the names were told anew


def test_each_connection_is_told_its_names(agents: Agents) -> None:
    first = agents(total=1000)
    with headrace.dataset("clicks").batches(10) as stream:
        assert next(stream).ranges[0].name == "day_5.tsv"
        stream.step()
        first.kill()
        agents(total=1000).names = lambda before: None if before else {"segments": {"7/6": "day_6.tsv"}}
        while "7/6" not in stream._feed._names.segments:
            next(stream)
            stream.step()
        assert stream._feed._names.segments == {"7/6": "day_6.tsv"}


def test_stats_tell_waiting_from_working(agents: Agents) -> None:
    agent = agents()
    agent.hold = True
    with headrace.dataset("clicks").batches(10) as stream:
        release = threading.Thread(target=lambda: (agent.wait(lambda: agent.credits), time.sleep(0.1), agent.release()))
        release.start()
        next(stream)  # asks for a batch, then waits for it
        release.join()
        time.sleep(0.05)
        stream.step()
        next(stream), next(stream)
        stream.step(batches=2)
        stats = stream.stats()
        assert stats.wait_seconds >= 0.09
        assert stats.step_seconds >= 0.04
        assert (stats.batches, stats.rows, stats.unstepped) == (3, 30, 0)
        agent.wait(lambda: any(s["rows"] == 30 for s in agent.of(STATS)))
        poll(lambda: stream.stats().durable == 3)


def test_paused_is_told_and_taken_back(agents: Agents) -> None:
    agent = agents()
    with headrace.dataset("clicks").batches(10) as stream:
        with stream.paused("eval"):
            agent.wait(lambda: agent.of(PAUSE) == [{"paused": True, "why": "eval"}])
        agent.wait(lambda: agent.of(PAUSE)[1:] == [{"paused": False, "why": ""}])


def test_unknown_dataset_says_which_there_are(agents: Agents) -> None:
    agents()
    with pytest.raises(headrace.DatasetError, match="no dataset nowhere: there are: clicks"):
        headrace.dataset("nowhere").batches(10)


@pytest.mark.parametrize("state", ["failed", "deleted"])
def test_a_failed_dataset_raises_in_a_waiting_next_and_still_takes_steps(agents: Agents, state: str) -> None:
    agent = agents(total=10**9)
    with headrace.dataset("clicks").batches(10) as stream:
        next(stream), next(stream), stream.step(batches=2)
        agent.hold = True
        reason = "day_3.tsv changed at [0, 100)"
        threading.Timer(0.05, agent.tell, (STATE, 1, {"state": state, "reason": reason})).start()
        with pytest.raises(headrace.DatasetError, match=r"'clicks' .*day_3.tsv changed"):
            while True:
                next(stream)
                stream.step()
        assert stream.step(batches=0)


def test_an_error_on_the_data_connection_ends_the_stream(agents: Agents) -> None:
    agent = agents()
    agent.hold = True
    stream = headrace.dataset("clicks").batches(10)
    thread = threading.Timer(
        0.05, lambda: agent.tell_data(1, ERROR, {"code": "failed", "message": "bad", "hint": "fix"})
    )
    thread.start()
    with pytest.raises(headrace.DatasetError, match="bad: fix"):
        next(stream)
    stream.close()


def test_keyboard_interrupt_in_next_loses_nothing(agents: Agents, way: dict[str, int]) -> None:
    agent = agents(total=100, per_frame=2, **way)
    agent.hold = True
    ids = []

    def interrupt() -> None:
        agent.wait(lambda: agent.credits)  # next() has asked, and waits
        signal.pthread_kill(threading.main_thread().ident, signal.SIGALRM)

    with headrace.dataset("clicks").batches(10) as stream:
        before = signal.signal(signal.SIGALRM, signal.default_int_handler)
        interrupting = threading.Thread(target=interrupt)
        try:
            with pytest.raises(KeyboardInterrupt):
                interrupting.start()
                next(stream)
        finally:
            interrupting.join()
            signal.signal(signal.SIGALRM, before)
        agent.release()
        for b in stream:
            ids.extend(b["id"].tolist())
            stream.step()
    assert ids == list(range(100))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupts_at_any_moment_lose_and_repeat_nothing(agents: Agents, way: dict[str, int]) -> None:
    agent = agents(total=3000, per_frame=4, **way)
    agent.hold = True  # until the first interrupt: next() waits for that
    ids: list[int] = []
    hits, in_vain, ended = 0, 0, False
    armed = False

    class Hit(Exception):
        pass

    def handler(*_: Any) -> None:
        if armed:
            raise Hit

    before = signal.signal(signal.SIGALRM, handler)
    try:
        with headrace.dataset("clicks").batches(10) as stream:
            n = 0
            while not ended:
                n += 1
                # The delay grows with each interrupt that came before a batch, so that a slow machine gets one too.
                delay = (1e-5 + (n % 37) * 2e-6) * (1 + in_vain / 20)
                try:
                    try:
                        armed = True
                        signal.setitimer(signal.ITIMER_REAL, delay)
                        if n % 2:
                            stream.ready(60)
                        b = next(stream)
                        armed = False
                        in_vain = 0
                        ids.extend(b["id"].tolist())
                    except StopIteration:
                        ended = True
                    armed = False
                except Hit:
                    armed = False
                    hits += 1
                    in_vain += 1
                    if agent.hold:
                        agent.release()
                # A batch counts as yielded even if its yield was interrupted.
                if stream.unstepped:
                    stream.step(batches=stream.unstepped)
            armed = False
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert hits
    lender = agent.streams[1].lender
    assert lender is None or lender.lent
    assert len(ids) == len(set(ids))
    assert ids == sorted(ids)
    assert len(ids) >= 3000 - 10 * hits


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"rows": 0}, "rows=0"),
        ({"rows": 1 << 28}, "rows="),
        ({"rows": 1, "ack": "later"}, "ack='later'"),
        ({"rows": 1, "max_wait": 0}, "max_wait=0"),
        ({"rows": 1, "max_wait": float("inf")}, "max_wait=inf"),
        ({"rows": 1, "max_wait": float("nan")}, "max_wait=nan"),
        ({"rows": 1, "columns": "id"}, r"\['id'\]"),
        ({"rows": 1, "global_rows": 8}, "say one of them"),
        ({"global_rows": 8, "rounds": False}, "this stream has none: say rounds=True"),
    ],
)
def test_bad_arguments_name_the_argument(agents: Agents, kwargs: dict[str, Any], message: str) -> None:
    if "global_rows" in kwargs:
        agents(total=1)  # this check needs the size of the world, and so an agent
    with pytest.raises(ValueError, match=message):
        headrace.dataset("clicks").batches(**kwargs)


def test_steps_from_another_thread_than_the_loop(agents: Agents) -> None:
    agent = agents(total=2000, per_frame=8)
    with headrace.dataset("clicks").batches(10) as stream:
        done = threading.Event()

        def stepper() -> None:
            while not done.is_set() or stream.unstepped:
                if stream.unstepped:
                    stream.step(batches=stream.unstepped)
                time.sleep(0.0005)

        thread = threading.Thread(target=stepper)
        thread.start()
        rows = sum(len(b) for b in stream)
        done.set()
        thread.join()
    assert rows == 2000
    agent.wait(lambda: agent.of(STEP)[-1]["through"] == 200)
    assert sum(s["batches"] for s in agent.of(STEP)) == 200


def test_warnings_are_not_raised_by_a_normal_run(agents: Agents) -> None:
    agents()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with headrace.dataset("clicks").batches(30) as stream:
            for b in stream:
                assert b["id"].size
                stream.step()
        headrace.shutdown()


def test_with_rounds_the_next_frame_is_taken_while_this_one_is_trained(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other ranks wait until this process says that it has its rows of the next round."""
    monkeypatch.setattr(Credits, "used", lambda *_: None)  # frames of four batches on any machine
    agent = agents(model="replicated", total=10_000, per_frame=4)
    headrace.init(rank=0, world_size=1)
    with headrace.dataset("clicks").batches(10, rounds=True) as stream:
        credits = stream._feed._credits
        credits.per_frame, credits.window = 4, 16
        number = 0

        def train() -> None:
            nonlocal number
            number += 1
            next(stream)
            stream.step(number)

        train()
        agent.holds()
        [(at_agent, sent)] = agent.streams.items()
        while number < sent.sent:
            train()
        agent.wait(lambda: sent.credit >= 8)
        agent.send_frame(at_agent)
        train()
        agent.send_frame(at_agent)
        train()
        assert number == sent.sent - 6
        agent.wait(lambda: agent.ready == sent.sent)
