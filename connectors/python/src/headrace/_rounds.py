"""Rounds: either all ranks of a synchronous group get round r, or none does.

A stream with rounds yields like any other, with one more condition: every rank has the
batch of that round (docs/ROUNDS.md). This process tells the agent which batches it has
received (READY). The agent tells it through which round all ranks may yield (ROUND).
Both go over the data connection, so the iterating thread waits in one place. Frames are
taken off the connection as they come, ahead of the loop, because the other ranks wait
until this process has received them.
"""

from __future__ import annotations

import contextlib
import select
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _messages as wire
from ._batch import Batch
from ._channel import Channel
from ._credits import Credits
from ._errors import Fenced, HeadraceError, ProtocolError, WorldChanged
from ._feed import FIRST_SECONDS, Feed
from ._frame import Frame
from ._receive import Receiver
from ._stream import Stream
from ._trainer import Trainer

# How many rounds' rows are kept after they were told: a rank that comes to an agent again
# tells them to others. docs/PROTOCOL.md.
KEPT = 4096

_series: dict[tuple[str, str], int] = {}  # streams with rounds so far, by process and dataset


class RoundFeed(Feed):
    """Frames that were received ahead, and how far all ranks may yield."""

    def __init__(self, path: str, incarnation: str, channel: Channel) -> None:
        super().__init__(path, incarnation, channel)
        self.through = 0  # every rank has the rounds up to this one
        self.last = False  # and it was the last one
        self.over = ""  # why there are no later ones
        self._came: deque[Frame] = deque()  # after the current frame
        self._ready = 0  # what READY said last
        #: Rows of rounds after the last one are dropped, and never yielded.
        self._drops = channel.open["rounds"].get("tail") == "drop"
        if self._drops:  # one round is yielded once all ranks have the next one, too
            self._credits = Credits(2)

    def frame(self, yielded: int) -> Frame | None:
        """The frame that holds the batch of round yielded + 1, once all ranks have theirs;
        None after the last round. Raises WorldChanged."""
        if not self.await_frame(yielded):
            return None
        self._replenish(yielded)
        frame = self._frame
        due = self._granted - self._credits.window + self._credits.per_frame
        if not self._came:  # all ranks wait until the next frame is taken: look for it after each batch
            due = 0
        self.carefree_until = min(frame.end, self.through, max(due, yielded + 1))
        return frame

    def await_frame(self, yielded: int, until: float | None = None) -> bool | None:
        """Does what Feed.await_frame() does, for this rank's batch of round yielded + 1, which
        all ranks must have. Raises WorldChanged."""
        if self._channel.fault is not None:
            self._drop()
            raise self._channel.fault
        self._take_what_came(yielded)
        self._turn_to(yielded)
        self._replenish(yielded)
        return True if self._has(yielded) else self._wait(yielded, until)

    def come(self, yielded: int) -> bool | None:
        """Takes the messages that have come, and does not wait for more. True: round yielded + 1
        is here, and all ranks have it. False: there is none. None: not yet. Raises WorldChanged."""
        channel = self._channel
        if channel.fault is not None:
            self._drop()
            raise channel.fault
        if channel.closed:
            self._drop()
            raise HeadraceError("the stream is closed")
        if self._receiver is None:
            self._next(yielded)
        elif not channel.received:
            self._may_begin()
        self._take_what_came(yielded)
        self._turn_to(yielded)
        self._replenish(yielded)
        return self._wait_ends(yielded)

    @property
    def connection(self) -> int:
        """The descriptor on which more will come; -1: there is none now."""
        sock = self._sock
        return -1 if sock is None else sock.fileno()

    def waited(self, began: float) -> None:
        """The program has waited since then, and got nothing done."""
        self._since = time.monotonic()
        self._channel.wait_seconds += self._since - began

    def ends(self, number: int) -> bool:
        """Says whether the batch is this rank's part of the last round."""
        return self.last and number == self.through

    def _has(self, yielded: int) -> bool:
        return yielded < self._frame.end and yielded < self.through

    def _turn_to(self, yielded: int) -> None:
        """Makes the frame after batch `yielded` the current one, if it has come."""
        if yielded >= self._frame.end and self._came:
            self._frame_used()
            self._frame = self._came.popleft()
            self._since = time.monotonic()

    def _take_what_came(self, yielded: int) -> None:
        channel = self._channel
        while self._receiver is not None and channel.fault is None and not channel.closed and self._receiver.ready(0):
            self._next(yielded)

    def _wait_ends(self, yielded: int) -> bool | None:
        """What _wait() answers now; None: it goes on waiting."""
        self._turn_to(yielded)
        if self._has(yielded):
            return True
        if yielded < self.through:
            return None  # all ranks have the round, and its frame is on its way again
        if self.last:
            return False
        if self.over:
            raise WorldChanged(f"no round follows after round {self.through}: {self.over}")
        return None

    def _wait(self, yielded: int, until: float | None) -> bool | None:
        """Waits for the frame and for the other ranks; False at the end, None at `until`."""
        channel = self._channel
        began = time.monotonic()
        channel.waiting = True
        try:
            while True:
                if channel.fault is not None:
                    self._drop()
                    raise channel.fault
                if channel.closed:  # by another thread
                    self._drop()
                    raise HeadraceError("the stream is closed")
                if (ends := self._wait_ends(yielded)) is not None:
                    return ends
                self._replenish(yielded)
                if not self._next_until(yielded, until):
                    return None
        finally:
            channel.waiting = False
            self.waited(began)

    def _deal_with(self, header: wire.Header, payload: NDArray[np.uint8], receiver: Receiver) -> None:
        if header.type != wire.ROUND:
            super()._deal_with(header, payload, receiver)
            self._say_ready()
            return
        said = wire.decode(header.type, payload.tobytes())
        through = wire.field(header.type, said, "through", int)
        if through >= self.through:
            self.last = bool(said.get("last"))
            self.over = str(said.get("over", ""))
            rows = _runs(said.get("rows") or [], through)
            rounds = self._channel.round_rows
            rounds.update(zip(range(through - len(rows) + 1, through + 1), rows))
            while len(rounds) > 2 * KEPT:
                del rounds[next(iter(rounds))]
            self._channel.on_round(through, self.last and self._drops)
            self._channel.round = {"through": through, "last": self.last}
            self.through = through  # last: an interrupted call deals with it again
            if self.last and self._drops:
                while self._came and self._came[-1].first > through:
                    self._came.pop()
                self._ready = -1  # READY says again what has come: nothing after the last round
        receiver.take()
        self._say_ready()

    def _take_frame(self, frame: Frame) -> None:
        newest = self._came[-1] if self._came else self._frame
        if frame.first > newest.end or not newest.batches:  # else an interrupted call comes again
            self._came.append(frame)

    def _say_ready(self) -> None:
        received = self._channel.received
        if received > self._ready and self._sock is not None:
            with contextlib.suppress(OSError):  # the next read sees it too
                self._sock.sendall(wire.encode(wire.READY, self._channel.number, number=received))
            self._ready = received


def wait_for(feeds: Sequence[RoundFeed]) -> None:
    """Waits until something has come for one of them, or one has lost its connection."""
    poll = select.poll()
    for feed in feeds:
        if feed.connection < 0:
            return
        poll.register(feed.connection, select.POLLIN)
    channels = [feed._channel for feed in feeds]
    begins = not all(channel.received for channel in channels)
    began = time.monotonic()
    for channel in channels:
        channel.waiting = True
    try:
        poll.poll(FIRST_SECONDS * 1000 if begins else None)
    finally:
        for feed in feeds:
            feed._channel.waiting = False
            feed.waited(began)


def _runs(runs: Any, through: int) -> list[int]:
    """The rows of consecutive rounds, as ROUND has them: [rounds, rows of each]."""
    rows: list[int] = []
    try:
        for count, each in runs:
            if count < 0 or each < 0 or len(rows) + count > through:
                raise ValueError(count)
            rows.extend([int(each)] * count)
    except (TypeError, ValueError):
        raise ProtocolError(f"a ROUND through {through} has the rows {runs!r}") from None
    return rows


class RoundStream(Stream):
    """A stream whose batch number r is this rank's part of round r of the group."""

    _connector = RoundFeed
    _feed: RoundFeed

    def __next__(self) -> Batch:
        try:
            batch = super().__next__()
        except Fenced as fenced:
            raise world_changed(fenced) from None
        return self._of_round(batch)

    def _again(self) -> Batch:
        return self._of_round(super()._again())

    def _of_round(self, batch: Batch) -> Batch:
        batch._global_rows = self._channel.round_rows.get(batch.number, -1)
        batch._ends = self._feed.ends(batch.number)
        return batch

    def give_back(self) -> int:
        """Refused: the round of a batch is decided for all ranks."""
        raise ValueError("give_back() with rounds=True: either all ranks train a round, or none does. Step every batch")

    def step(self, step: int | None = None, *, batches: int | None = None, through: int | None = None) -> int:
        """Does what Stream.step() does, and raises WorldChanged instead of Fenced."""
        try:
            return super().step(step, batches=batches, through=through)
        except Fenced as fenced:
            raise world_changed(fenced) from None


def world_changed(fenced: Fenced) -> WorldChanged:
    """Returns the error of rounds for Fenced: the whole group begins again."""
    return fenced if isinstance(fenced, WorldChanged) else WorldChanged(str(fenced))


def open_rounds(
    kind: type[RoundStream], trainer: Trainer, request: dict[str, Any], max_wait: float, tail: str
) -> RoundStream:
    """Opens this process's next series of rounds of a dataset."""
    rounds: dict[str, Any] = {"max_wait_ms": max(1, round(max_wait * 1000))}
    if tail == "drop":
        rounds["tail"] = tail
    with next_series(trainer, request, rounds) as numbered:
        return kind(trainer, numbered, trainer.open(numbered))


@contextlib.contextmanager
def next_series(trainer: Trainer, request: Mapping[str, Any], rounds: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The request with these rounds, as this process's next series of the dataset. The number
    is used once the block is left without an error."""
    key = (trainer.incarnation, str(request["dataset"]))
    series = _series.get(key, 0) + 1
    yield dict(request, rounds={"series": series, **rounds})
    _series[key] = series
