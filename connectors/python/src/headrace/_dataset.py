"""Dataset: a named use of a source, as applied with `headrace dataset apply`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from numbers import Real
from operator import index
from typing import Any, Literal, NoReturn

from . import _advice
from ._errors import DatasetError
from ._pad import PaddedRoundStream, PaddedStream
from ._rounds import RoundStream, open_rounds
from ._steps import Steps
from ._stream import Stream
from ._trainer import Trainer, init

MAX_ROWS = 1 << 27
_LONGEST = 1_000_000_000  # seconds of max_wait: 31 years. The agent counts nanoseconds in 64 bits


def _seconds(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}={value!r}; it is seconds, as in {name}=2.0")
    return float(value)


class Dataset:
    """A dataset by its name. Nothing is asked of the agent before batches()."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a dataset is a string, not {name!r}")
        self.name = name

    def batches(
        self,
        rows: int | None = None,
        *,
        global_rows: int | None = None,
        columns: Iterable[str] | None = None,
        max_wait: float | None = None,
        ack: Literal["step", "auto"] = "step",
        track: bool = True,
        rounds: bool | None = None,
        tail: Literal["short", "pad", "drop"] = "short",
        max_unanswered: float | None = None,
    ) -> Stream:
        """Opens a stream of batches of exactly `rows` rows.

        global_rows, in place of rows: the rows of one round on all ranks together.
        Each rank gets its share. If the rows do not divide evenly, the first ranks get
        one row more. So a group of another size trains rounds of the same size. It needs
        rounds.

        A batch is shorter only at the end of the input, or because of max_wait: that many
        seconds after its first row, a batch is yielded with the rows that it has. Without a
        row there is no batch. Pushed records wait less if no other records are visible and
        no batch has left for max_wait (docs/LANDING.md, "When a trainer gets them").

        columns: which of the dataset's columns; default all.
        ack="auto": a batch counts as stepped when the next one is asked for; only
        for plain loops in the opening thread.
        track=False: batches count as done when they were sent. If a trainer is killed,
        the batches in its hands are lost. step() does nothing.

        rounds=True: batch number r is this rank's part of round r of a synchronous
        group, as in DDP. Either all ranks get round r, or none does, and the last round
        is the same on every rank. A rank without rows waits here. After max_wait
        seconds (default 2) a round is yielded with the rows that it has: a batch may
        have none. The model is replicated. next() raises WorldChanged if a rank has
        ended. This is the default for a replicated model of more than one rank.
        rounds=False says that the program balances the ranks by itself: each gets what
        it asks for. docs/ROUNDS.md.

        tail="pad": a batch with fewer rows than asked is filled up with its own rows, so
        that shapes stay constant. ``batch.weight`` is 0 for the added rows and 1 for the
        others: multiply the loss of each row by it. ``len(batch)`` is the number of records.

        tail="drop", with rounds: every batch has all its rows. At the end of the input,
        rows that do not fill a round are dropped: they count as settled with the last
        round's step, are in no model, and are listed (headrace status, headrace audit).
        If the input has no end, such rows wait for more rows; max_wait closes no round.

        Two streams of one dataset in one process share its records as two processes
        do, and a stream gives no rows to another one of its own process. So do not read
        them in turns in one thread: one of them may wait for rows that the other one
        has. Give each a thread that steps its batches.

        max_unanswered: seconds, for a shared model. If the master has not answered a step
        for that long, next() waits for the answer. So if a node is lost, at most the steps
        of that time come again. Default: the session's TTL.

        Raises DatasetError (unknown, invalid), AgentUnavailable, Fenced, and
        HeadraceError in a forked process or a DataLoader's worker.
        """
        if global_rows is not None:
            rows = self._share(rows, global_rows, rounds, track)
        request = self._request(rows, columns, track)
        count = request["rows"]
        if ack not in ("step", "auto"):
            raise ValueError(f'ack={ack!r}; it is "step" or "auto"')
        if max_wait is not None and not 0 < _seconds(max_wait, "max_wait") <= _LONGEST:
            raise ValueError(f"max_wait={max_wait!r}; it is seconds, more than 0 and at most {_LONGEST}, or None")
        request["max_wait_ms"] = None if max_wait is None else max(1, round(max_wait * 1000))
        request["ack"] = ack
        if max_unanswered is not None:
            if not _seconds(max_unanswered, "max_unanswered") > 0:
                raise ValueError(f"max_unanswered={max_unanswered!r}; it is seconds, more than 0, or None: the TTL")
            request["max_unanswered"] = float(max_unanswered)
        if tail not in ("short", "pad", "drop"):
            raise ValueError(f'tail={tail!r}; it is "short", "pad" or "drop"')
        trainer = init()
        if rounds is None:
            rounds = trainer.model == "replicated" and trainer.world_size > 1 and track
            _advice.look_for_group(trainer.model)
        if rounds:
            return self._rounds(trainer, request, 2.0 if max_wait is None else max_wait, tail)
        if tail == "drop":
            raise ValueError('tail="drop" needs rounds, and this stream has none: set rounds=True')
        channel = trainer.open(request)
        if not channel.virtual_ranks:
            return (PaddedStream if tail == "pad" else Stream)(trainer, request, channel)
        ranks = channel.virtual_ranks
        trainer.close_channel(channel)
        raise DatasetError(
            f"dataset {self.name!r} is bit_exact, with {ranks} virtual ranks: several batches are one step of it. "
            f"Open it with headrace.dataset({self.name!r}).steps({count})"
        )

    def _share(self, rows: int | None, global_rows: int, rounds: bool | None, track: bool) -> int:
        """This rank's rows of a round of global_rows."""
        if rows is not None:
            raise ValueError(f"rows={rows!r} and global_rows={global_rows!r}: say one of them")
        try:
            count = index(global_rows)
        except TypeError:
            raise TypeError(f"global_rows={global_rows!r}; it is a whole number, as in global_rows=4096") from None
        trainer = init()
        if rounds is False or (rounds is None and (trainer.model != "replicated" or not track)):
            raise ValueError(
                f"global_rows={count} is the size of a round, and this stream has none: say rounds=True, with a "
                "replicated model, or say rows"
            )
        if count < trainer.world_size:
            raise ValueError(f"global_rows={count} for {trainer.world_size} ranks: each needs a row at least")
        return count // trainer.world_size + (trainer.rank < count % trainer.world_size)

    def _rounds(self, trainer: Trainer, request: dict[str, Any], max_wait: float, tail: str) -> Stream:
        self._may_have_rounds(trainer, request)
        request["max_wait_ms"] = None
        return open_rounds(PaddedRoundStream if tail == "pad" else RoundStream, trainer, request, max_wait, tail)

    def _may_have_rounds(self, trainer: Trainer, request: dict[str, Any]) -> None:
        if trainer.model != "replicated":
            raise ValueError(
                f"rounds=True is for ranks that train one model together, and this job's model is {trainer.model!r}: "
                "start the master with --model replicated, or leave rounds out"
            )
        if not request["track"]:
            raise ValueError("rounds=True with track=False: a round is in the model when you step it")

    def steps(
        self,
        rows: int,
        *,
        columns: Iterable[str] | None = None,
        track: bool = True,
        rounds: bool | None = None,
    ) -> Steps:
        """Opens a dataset with ``bit_exact``: yields, for one step at a time, the list
        of the batches of exactly `rows` rows of this rank's virtual ranks.

        This rank has the virtual ranks v with v % world_size == rank, in their order.
        A virtual rank's last batch may be shorter. After that the virtual rank is no
        longer in the list. After the last batch of all of them there is no further list.

        rounds=True: every rank gets the same number of lists, so that a synchronous
        group (DDP) may reduce once for each. A rank whose virtual ranks have no record
        left gets empty lists until the last step of the group. next() raises
        WorldChanged if a rank has ended. This is the default for a replicated model of
        more than one rank. rounds=False: a rank's lists end with its own records.
        docs/ROUNDS.md.

        columns, track: as in batches(). Raises what that does, and ValueError if
        there are more ranks than virtual ranks.
        """
        request = self._request(rows, columns, track)
        trainer = init()
        if rounds is None:
            rounds = trainer.model == "replicated" and trainer.world_size > 1 and track
        if rounds:
            self._may_have_rounds(trainer, request)
        channel = trainer.open(request)
        trainer.close_channel(channel)  # it says how many virtual ranks there are, and is none of them
        if not channel.virtual_ranks:
            raise DatasetError(
                f"dataset {self.name!r} is not bit_exact: headrace.dataset({self.name!r}).batches({rows})"
            )
        if trainer.world_size > channel.virtual_ranks:
            raise ValueError(
                f"{trainer.world_size} ranks read dataset {self.name!r}, which has {channel.virtual_ranks} virtual "
                f"ranks: start at most {channel.virtual_ranks} ranks"
            )
        mine = range(trainer.rank, channel.virtual_ranks, trainer.world_size)
        return Steps(trainer, request, mine, rounds)

    def _request(self, rows: int | None, columns: Iterable[str] | None, track: bool) -> dict[str, Any]:
        try:
            count = index(rows)  # type: ignore[arg-type]
        except TypeError:
            raise TypeError(f"rows={rows!r}; it is a whole number, as in batches(1024)") from None
        if not 1 <= count <= MAX_ROWS:
            raise ValueError(f"rows={rows}; a batch has 1 to {MAX_ROWS} rows")
        if isinstance(columns, str):
            raise ValueError(f"columns={columns!r}; it is a list of names, as in [{columns!r}]")
        return {
            "dataset": self.name,
            "rows": count,
            "columns": None if columns is None else [str(name) for name in columns],
            "max_wait_ms": None,
            "ack": "step",
            "track": bool(track),
        }

    def __iter__(self) -> NoReturn:
        raise TypeError(
            f"a dataset is read in batches, by a stream: for b in headrace.dataset({self.name!r}).batches(1024)"
        )

    def __next__(self) -> NoReturn:
        raise TypeError(
            "a dataset is read in batches, by a stream: stream = "
            f"headrace.dataset({self.name!r}).batches(1024), then next(stream)"
        )

    def __getattr__(self, name: str) -> NoReturn:
        known = ("batches", "steps", "name")
        near = "batches" if name.startswith("batch") else next(iter(difflib.get_close_matches(name, known, 1)), "")
        hint = f": did you mean {near}?" if near and not name.startswith("_") else ""
        raise AttributeError(f"a Dataset has no {name!r}{hint}")

    def __repr__(self) -> str:
        return f"Dataset({self.name!r})"


def dataset(name: str) -> Dataset:
    """The dataset of that name: ``headrace.dataset("clicks").batches(1024)``."""
    return Dataset(name)
