"""Stream: batches out, steps in."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import index
from time import monotonic
from typing import TYPE_CHECKING, Any

from . import _cuts, _restore
from ._batch import Batch
from ._channel import Channel
from ._claim import Claim, claim
from ._columns import Column
from ._covered import carried
from ._errors import HeadraceError
from ._feed import Feed
from ._frame import Frame
from ._trainer import Trainer, warn_unstepped

if TYPE_CHECKING:
    from types import TracebackType

_NO_FRAME = Frame.empty()
_GIVEN_BACK = "another thread has given back the unstepped batches of this stream: ask for the next batch again"


@dataclass(frozen=True)
class Stats:
    """Totals of a stream."""

    batches: int  # yielded
    rows: int
    unstepped: int  # batches yielded and not stepped
    durable: int  # batches whose step is durable
    wait_seconds: float  # in next(), waiting for data
    step_seconds: float  # between batches: the trainer's own time
    unanswered_seconds: float = 0.0  # of a shared model: how long the oldest step has been without an answer


def _whole(value: Any, name: str, as_in: str) -> int:
    try:
        return index(value)
    except TypeError:
        pass
    of = "; batch.done() steps one batch" if isinstance(value, Batch) else ""
    raise TypeError(f"{name}={value!r}; it is a whole number, as in {as_in}{of}")


class Stream:
    """An iterator of batches. The trainer reports with step() which batches are in the model.

    One thread iterates; step(), done(), paused(), stats() and close() may be called from any
    thread. Not usable in a forked process.

    In a signal handler, set a flag and do the rest in the loop. A handler may interrupt a call of
    Headrace in its own thread: then step(), a save and shutdown() raise HeadraceError in it,
    and close() closes the stream a moment later.
    """

    _connector = Feed
    _batch = Batch

    def __init__(self, trainer: Trainer, request: dict[str, Any], channel: Channel | None = None) -> None:
        self._trainer = trainer
        self._rows = int(request["rows"])
        self._auto = request["ack"] == "auto"
        self._opener = threading.get_ident()
        #: Of a bit_exact dataset: the virtual rank whose batches these are.
        self.virtual_rank: int | None = request.get("virtual")
        self._channel: Channel = channel or trainer.open(request)
        self._feed = self._connector(trainer.settings.agent, trainer.incarnation, self._channel)
        self._frame = _NO_FRAME
        self._fast_until = 0  # batches that next() may yield before it must look around
        self._before = 0  # batches that were yielded before the last give_back()
        self._swap = threading.Lock()

    # Iteration.

    def __iter__(self) -> Stream:
        return self

    def __len__(self) -> int:
        raise TypeError(
            "a stream has no length. For torch's DataLoader: "
            "DataLoader(headrace.torch.Loader(stream=stream), batch_size=None)"
        )

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        channel = self._channel
        opened = channel.open
        state = "closed" if channel.closed else "ended" if channel.ended else f"rank {self._trainer.rank}"
        return (
            f"Stream({opened['dataset']!r}, {opened['rows']} rows a batch, {state}: "
            f"{channel.yielded} batches yielded, {self.unstepped} unstepped)"
        )

    def __next__(self) -> Batch:
        channel = self._channel
        yielded = channel.yielded
        if yielded >= self._fast_until or channel.fault is not None:
            self._advance(channel, yielded)
        frame = self._frame
        if frame is _NO_FRAME:
            raise HeadraceError(_GIVEN_BACK)
        per = frame.rows_per_batch
        number = yielded + 1
        start = (number - frame.first) * per
        stop = start + per
        if stop > frame.rows:
            stop = frame.rows
        if monotonic() >= channel.trust:  # this process, or its agent, stood still
            self._trainer.control.trust.wait(channel)
        # The control thread sets yields_paused and then reads yielded. Here it is the other way
        # round, so one of the two threads sees what the other one did.
        channel.yielded = number
        if channel.yields_paused:
            self._trainer.control.yields.enter(channel, number)
        channel.rows = frame.before + stop
        return self._batch(frame, start, stop, self, number + self._before)

    def _again(self) -> Batch:
        """The last batch that next() has yielded, for a caller that lost it to a signal's exception."""
        frame, number = self._frame, self._channel.yielded
        start = (number - frame.first) * frame.rows_per_batch
        stop = min(start + frame.rows_per_batch, frame.rows)
        self._channel.rows = frame.before + stop
        return self._batch(frame, start, stop, self, number + self._before)

    def ready(self, seconds: float = 0.0) -> bool:
        """Whether next() has its answer now: a batch, or the end of the input. Waits for it
        so many seconds at most.

        For a loop that has something else to do when the input falls silent, such as a save:

            while True:
                if not stream.ready(60):  # nothing has come for a minute
                    if step > saved:
                        ck.save(step, model)
                        saved = step
                    continue
                b = next(stream, None)
                if b is None:
                    break  # the input has ended

        It yields nothing. With ack="auto" it reports the last batch, as next() does. One
        thread at a time may be in ready() or next(). While a shared model is saved, next() may
        wait although ready() gave True. Raises what next() raises.
        """
        if not seconds >= 0:
            raise ValueError(f"seconds={seconds!r}; it is 0 or more")
        channel = self._channel
        feed = self._ask(channel)
        try:
            return feed.await_frame(channel.yielded, monotonic() + seconds) is not None
        finally:
            feed.asking.release()

    def _advance(self, channel: Channel, yielded: int) -> None:
        """Makes sure that self._frame holds the next batch, or raises."""
        channel.iterator = threading.get_ident()
        feed = self._ask(channel)
        try:
            frame = feed.frame(yielded)
        finally:
            feed.asking.release()
        if frame is None:
            raise StopIteration
        with self._swap:  # give_back() may come from another thread
            if self._feed is not feed:
                raise HeadraceError(_GIVEN_BACK)
            last = self._frame
            if frame is not last:
                frame.before = channel.rows if last is _NO_FRAME else last.before + last.rows
            self._frame = frame
            self._fast_until = 0 if self._auto else feed.carefree_until

    def _ask(self, channel: Channel) -> Feed:
        """The feed, which this thread alone may ask until it releases `asking`."""
        feed = self._feed
        if feed._channel is not channel:
            raise HeadraceError(_GIVEN_BACK)
        if self._auto:
            self._ack_yielded()
        if channel.closed and channel.fault is None:
            raise HeadraceError("the stream is closed")
        if not feed.asking.acquire(blocking=False):
            raise HeadraceError(
                "two threads ask this stream for batches at the same time, and one thread at a time may: let one read "
                "and hand the batches on, as through queue.Queue, or open a stream for each thread"
            )
        return feed

    def _ack_yielded(self) -> None:
        channel = self._channel
        if threading.get_ident() != self._opener:
            raise HeadraceError(
                'a stream with ack="auto" is iterated by the thread that opened it: elsewhere "the next batch was '
                'asked for" does not mean "the last one is in the model". Use ack="step" and stream.step()'
            )
        batches = channel.yielded - channel.stepped
        if batches and channel.tracked and channel.fenced is None and not channel.closed:
            self._trainer.report(channel, None, batches)

    # Steps.

    def step(self, step: int | None = None, *, batches: int | None = None, through: int | None = None) -> int:
        """The oldest `batches` unstepped batches are in the model as of `step`.

        batches: default 1; required if more than one is unstepped; 0 for an idle rank
        that only reports the step. through: instead of batches, the number of the last
        batch that is in the model (`Batch.number`), for programs that take batches ahead.
        step: must grow over all streams of this rank. Default: the rank's last reported
        step + 1, if no other rank has to count the same steps (world size 1, ``private``,
        ``shared``).

        Never blocks: a background thread sends it. Returns the step. Raises
        ValueError, Fenced if an earlier step was refused, and HeadraceError if
        the stream was closed before. With track=False there is nothing to report,
        and 0 is returned.
        """
        channel = self._channel
        if channel.fenced is not None:
            raise channel.fenced
        if through is not None:
            batches = self._through(index(through), batches)
        elif batches is None:
            batches = 1
            if channel.yielded - channel.stepped != 1:
                self._need_batches()
        elif type(batches) is not int or batches < 0:
            batches = _whole(batches, "batches", "stream.step(batches=2)")
            if batches < 0:
                raise ValueError(f"batches={batches}; it must be 0 or more")
        if step is None:
            if not self._trainer.may_default_step:
                raise ValueError(
                    f"say the step: the {self._trainer.world_size} ranks of a {self._trainer.model} model must count "
                    "the same global step, as in stream.step(global_step)"
                )
        elif type(step) is not int:
            step = _whole(step, "step", "stream.step(), or stream.step(global_step)")
        if self._auto or not channel.tracked:
            return self._no_steps()
        return self._trainer.report(channel, step, batches)

    def _through(self, number: int, batches: int | None) -> int:
        """How many unstepped batches there are up to `number`."""
        if batches is not None:
            raise ValueError(f"step(batches={batches}, through={number}): say one of both")
        channel = self._channel
        first, last = self._before + channel.stepped + 1, self._before + channel.yielded
        if channel.tracked and not first <= number <= last:
            held = f"the unstepped ones are {first} to {last}" if first <= last else "no batch is unstepped"
            raise ValueError(
                f"through={number}: {held}. Batches are stepped in the order they were yielded, each once; one "
                "that was given back has another number when it comes again"
            )
        return number - self._before - channel.stepped

    def _done(self, number: int, step: int | None) -> int:
        channel = self._channel
        if self.virtual_rank is not None:
            raise ValueError(
                "a batch of a bit_exact dataset is done with the others of its step: "
                "stream.step(step) after all of them"
            )
        if channel.tracked and number != self._before + channel.stepped + 1:
            raise ValueError(
                f"batch {number} cannot be done now: batches are done in the order they were yielded, once each, "
                f"and the next one is {self._before + channel.stepped + 1}"
            )
        return self.step(step, batches=1)

    def _need_batches(self) -> None:
        channel = self._channel
        held = channel.yielded - channel.stepped
        if self._auto or not channel.tracked:
            return
        if held:
            raise ValueError(
                f"{held} batches are unstepped: say how many are in the model, as in stream.step(batches={held})"
            )
        raise ValueError("no batch is unstepped: an idle rank reports its step with batches=0")

    def _no_steps(self) -> int:
        if self._auto:
            raise ValueError('a stream with ack="auto" steps by itself, at the next batch')
        return 0

    def give_back(self) -> int:
        """Gives back the batches that were yielded and not stepped: their records come again,
        here or at another worker, in batches with new numbers. Returns the number of rows.

        For a loop that took batches ahead and stops before it has trained them. The
        stream goes on. A next() that waits in another thread meanwhile raises
        HeadraceError. Not for a stream with rounds or of a bit_exact dataset: the other
        ranks count on this rank's batches. Raises ValueError, Fenced, AgentUnavailable.
        """
        if self.virtual_rank is not None or not self._channel.tracked or self._auto:
            raise ValueError('give_back() is for a stream of batches() with ack="step" and track=True, not bit_exact')
        old = self._channel
        if old.closed:
            return 0
        rows = old.unstepped_rows()
        self._trainer.close_channel(old)
        channel = self._trainer.open(old.open)
        for name in ("rows", "wait_seconds", "step_seconds"):
            setattr(channel, name, getattr(old, name))
        feed = self._connector(self._trainer.settings.agent, self._trainer.incarnation, channel)
        with self._swap:
            self._before += old.yielded
            self._frame, self._fast_until = _NO_FRAME, 0  # before the others: a next() that waits looks at it
            self._feed = feed
            self._channel = channel
        return rows

    def claim(self, batch: Batch) -> Claim:
        """The records of the batch, as the source names them, for a model whose server can
        store the claim together with the update. Each record is then in the model once,
        whatever is killed. See `Applied`. batch: of this stream, or a slice of one.
        """
        if batch._stream is not None and batch._stream is not self:
            raise ValueError(f"batch {batch.number} is of another stream: ask that one")
        return claim(self._channel.open["dataset"], batch)

    # Checkpoints that a framework writes.

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """The records that are in the model at this rank's last stepped step, for a
        framework that keeps the data loader's state in its own checkpoint file.

        It is plain JSON, of all datasets of the job, and always complete: the call waits
        until every rank has reported the step and the cut is frozen. step: if given, it
        must be the last stepped one. The master keeps the newest 3 of these cuts. With a
        shared model, call it before you copy the model's state.

        Raises ValueError, CheckpointError after a minute, and Fenced.
        """
        trainer = self._trainer
        rows = trainer.rows_stepped()
        number = _cuts.check_step(trainer, step)
        state = dict(_cuts.ask(trainer, number, time.monotonic() + _cuts.CUT_SECONDS).body)
        carried(trainer).saved(rows)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes back to a cut of state_dict(): exactly the input without its records follows.

        Before the first batch. In a replicated model every rank does, with the same
        state. Raises CheckpointError if it is refused, and Fenced.
        """
        _restore.load_carried(self._trainer, dict(state))
        carried(self._trainer)

    # The rest.

    @property
    def columns(self) -> tuple[Column, ...]:
        """What a batch holds, in order."""
        return self._channel.columns

    @property
    def unstepped(self) -> int:
        """Batches that were yielded and not stepped."""
        return self._channel.yielded - self._channel.stepped if self._channel.tracked else 0

    @contextlib.contextmanager
    def paused(self, reason: str = "") -> Iterator[None]:
        """No progress is expected meanwhile: ``with stream.paused("eval"): ...``

        Without it, a trainer that makes no progress for the dataset's `lease.stall` is ended
        if another one waits for rows.
        """
        self._trainer.pause(self._channel, reason)
        try:
            yield
        finally:
            self._trainer.pause(self._channel, None)

    def stats(self) -> Stats:
        """Totals so far; times are in seconds, and grow with whole frames."""
        channel = self._channel
        return Stats(
            batches=self._before + channel.yielded,
            rows=channel.rows,
            unstepped=self.unstepped,
            durable=self._before + channel.acked,
            wait_seconds=channel.wait_seconds,
            step_seconds=channel.step_seconds,
            unanswered_seconds=max(0.0, time.monotonic() - channel.unanswered.since),
        )

    def close(self) -> None:
        """Closes the stream. Steps are still sent. Batches that were yielded and not stepped
        come again, and a warning says how many rows these are."""
        closed = self._channel.closed
        self._trainer.close_channel(self._channel)
        if not closed:
            warn_unstepped(self._channel)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._trainer.close_channel(self._channel)

    def __del__(self) -> None:
        # The garbage collector calls it in any thread, at almost any moment: it takes no lock.
        if hasattr(self, "_feed") and not self._channel.closed:
            self._trainer.leave_channel(self._channel)
            warn_unstepped(self._channel, 3)
