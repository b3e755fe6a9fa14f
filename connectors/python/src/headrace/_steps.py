"""Steps: the same batches in each step, whatever the number of ranks (bit_exact)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ._batch import Batch
from ._columns import Column
from ._errors import Fenced
from ._rounds import RoundStream, next_series, wait_for, world_changed
from ._stream import Stats, Stream, _whole
from ._trainer import Trainer

if TYPE_CHECKING:
    from types import TracebackType


class Steps:
    """An iterator of lists of batches: one step of this rank's virtual ranks.

    Each virtual rank is read by a stream of its own, and yields the same batches whichever
    rank reads it: batch k of each is in the k-th list. Take a list, learn from all of it,
    call step() once:

        for batches in steps:
            for b in batches:
                model.accumulate(b["x"], b["y"])  # b.virtual_rank says whose it is
            model.apply()
            steps.step(step)

    With rounds, either all ranks get a step or none does: all get the same number of lists,
    and a rank whose virtual ranks have no record left gets empty ones. Without rounds, one
    rank may run out of batches a step before another: it must go on calling step() as long
    as others have batches. One thread iterates.
    """

    def __init__(
        self, trainer: Trainer, request: Mapping[str, Any], virtual_ranks: Sequence[int], rounds: bool = False
    ) -> None:
        self._trainer = trainer
        self._tracked = bool(request["track"])
        # How many lists were yielded, and the next one in the making: for each virtual rank in turn
        # its batch, or None if it has no more. An interrupted next() goes on with it.
        self._making: tuple[int, list[Batch | None]] = (0, [])
        self._streams: list[Stream] = []
        self._rounds: list[RoundStream] = []  # the same ones, with rounds
        self._over: set[int] = set()
        self._round: Batch | None = None  # with rounds: one of the list that was yielded last
        #: The virtual ranks that this rank reads, in their order.
        self.virtual_ranks = tuple(virtual_ranks)
        try:
            if rounds:
                # Only the end of its own records makes a virtual rank's batch short: no clock does.
                with next_series(trainer, request, {"max_wait_ms": 0}) as numbered:
                    for v in self.virtual_ranks:
                        mine = dict(numbered, virtual=v)
                        self._rounds.append(RoundStream(trainer, mine, trainer.open(mine)))
                        self._streams.append(self._rounds[-1])
            else:
                for v in self.virtual_ranks:
                    self._streams.append(Stream(trainer, dict(request, virtual=v)))
        except BaseException:
            self.close()
            raise

    # Iteration.

    def __iter__(self) -> Steps:
        return self

    def __next__(self) -> list[Batch]:
        if self._rounds:
            try:
                return self._next_round()
            except Fenced as fenced:
                raise world_changed(fenced) from None
        yielded, made = self._making
        while len(made) < len(self._streams):
            made.append(self._next_of(len(made), yielded))
        batches = [batch for batch in made if batch is not None]
        if not batches:
            raise StopIteration
        self._making = (yielded + 1, [])
        return batches

    def _next_of(self, turn: int, yielded: int) -> Batch | None:
        """The batch of a virtual rank for the list after `yielded` ones; None if it has no more."""
        stream = self._streams[turn]
        if stream._channel.yielded > yielded:  # next() was interrupted after the stream had yielded it
            return stream._again()
        if turn in self._over:
            return None
        batch = next(stream, None)
        if batch is None:
            self._over.add(turn)
        return batch

    def _next_round(self) -> list[Batch]:
        """The batches of the next round, in which a virtual rank may have no row left."""
        if not self._begun() and not self._round_comes():
            raise StopIteration
        yielded, made = self._making
        while len(made) < len(self._streams):
            made.append(self._next_of(len(made), yielded))
        self._round = made[0]
        batches = [batch for batch in made if batch is not None and len(batch)]
        self._making = (yielded + 1, [])
        return batches

    def _begun(self) -> bool:
        """A batch of the list in the making was yielded by its stream."""
        return any(stream._channel.yielded > self._making[0] for stream in self._streams)

    def _round_comes(self) -> bool:
        """Waits until all virtual ranks have their batch of the next round, or there is none.

        All connections are read meanwhile: a virtual rank is ready for a round once its
        batch has come to this process, and the others wait for that.
        """
        while True:
            here, waits = True, []
            for stream in self._rounds:
                channel = stream._channel
                if channel.yielded < stream._fast_until and channel.fault is None:
                    continue
                comes = stream._feed.come(channel.yielded)
                if comes is None:
                    waits.append(stream._feed)
                elif not comes:
                    here = False
            if not waits:
                return here
            wait_for(waits)

    # Steps.

    def step(self, step: int | None = None) -> int:
        """All batches that were yielded and not stepped are in the model as of
        `step`; where there are none, the rank only reports it.

        step: as in Stream.step(). Never blocks. Returns the step. Raises ValueError,
        Fenced (with rounds: WorldChanged) if an earlier step was refused, and
        HeadraceError if they were closed.
        """
        try:
            return self._step(step)
        except Fenced as fenced:
            raise world_changed(fenced) if self._rounds else fenced from None

    def _step(self, step: int | None) -> int:
        trainer = self._trainer
        channels = [stream._channel for stream in self._streams]
        for channel in channels:
            if channel.fenced is not None:
                raise channel.fenced
        if self._begun():
            raise ValueError("a list of batches was begun and not yielded: take it with next() before step()")
        if step is None:
            if not trainer.may_default_step:
                raise ValueError(
                    f"say the step: the {trainer.world_size} ranks of a {trainer.model} model must count "
                    "the same global step, as in steps.step(global_step)"
                )
        elif type(step) is not int:
            step = _whole(step, "step", "steps.step(), or steps.step(global_step)")
        if not self._tracked:
            return 0
        return trainer.report_all(channels, step)

    # Checkpoints that a framework writes.

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Does what Stream.state_dict() does."""
        return self._streams[0].state_dict(step)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Does what Stream.load_state_dict() does. The number of ranks may be another one."""
        self._streams[0].load_state_dict(state)

    # The rest.

    @property
    def last(self) -> bool:
        """With rounds: the list that was yielded last is the last one, on every rank."""
        return self._of_round().last

    @property
    def global_rows(self) -> int:
        """With rounds: the rows of all ranks in the step that was yielded last. Divide a loss
        that is a sum over rows by it."""
        return self._of_round().global_rows

    def _of_round(self) -> Batch:
        if not self._rounds:
            raise ValueError("these steps have no rounds: open them with steps(rows, rounds=True)")
        if self._round is None:
            raise ValueError("no list was yielded yet")
        return self._round

    @property
    def columns(self) -> tuple[Column, ...]:
        """What a batch holds, in order."""
        return self._streams[0].columns

    @property
    def unstepped(self) -> int:
        """Batches that were yielded and not stepped."""
        return sum(stream.unstepped for stream in self._streams)

    @contextlib.contextmanager
    def paused(self, reason: str = "") -> Iterator[None]:
        """Does what Stream.paused() does."""
        with contextlib.ExitStack() as stack:
            for stream in self._streams:
                stack.enter_context(stream.paused(reason))
            yield

    def stats(self) -> Stats:
        """Totals of all virtual ranks. Their times may overlap, because one thread waits for
        all of them and uses all of them."""
        each = [stream.stats() for stream in self._streams]
        return Stats(
            batches=sum(s.batches for s in each),
            rows=sum(s.rows for s in each),
            unstepped=sum(s.unstepped for s in each),
            durable=sum(s.durable for s in each),
            wait_seconds=sum(s.wait_seconds for s in each),
            step_seconds=max((s.step_seconds for s in each), default=0.0),
            unanswered_seconds=max((s.unanswered_seconds for s in each), default=0.0),
        )

    def __repr__(self) -> str:
        dataset = self._streams[0]._channel.open["dataset"] if self._streams else ""
        return f"Steps({dataset!r}, virtual ranks {list(self.virtual_ranks)}, {self.unstepped} batches unstepped)"

    def close(self) -> None:
        """Closes the streams of all virtual ranks."""
        for stream in self._streams:
            stream.close()

    def __enter__(self) -> Steps:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in self._streams:
            stream.__exit__(kind, error, trace)
