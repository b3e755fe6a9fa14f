"""Dataset: a named use of a source, as applied with `headrace dataset apply`."""

from __future__ import annotations

from collections.abc import Iterable
from operator import index
from typing import Any, Literal

from ._stream import Stream
from ._trainer import init

MAX_ROWS = 1 << 27


class Dataset:
    """A dataset by its name. Nothing is asked of the agent before batches()."""

    def __init__(self, name: str) -> None:
        if not isinstance(name, str) or not name:
            raise ValueError(f"the name of a dataset is a string, not {name!r}")
        self.name = name

    def batches(
        self,
        rows: int,
        *,
        columns: Iterable[str] | None = None,
        max_wait: float | None = None,
        ack: Literal["step", "auto"] = "step",
        track: bool = True,
    ) -> Stream:
        """Opens a stream of batches of exactly `rows` rows.

        Only the end of the input shortens a batch, or max_wait: seconds from its
        first row after which it is yielded as it is. Without a row there is no
        batch.

        columns: which of the dataset's columns; default all.
        ack="auto": a batch counts as stepped when the next one is asked for; only
        for plain loops in the opening thread.
        track=False: batches count as done when they were sent; what a killed
        trainer had in hand is lost. step() does nothing.

        Raises DatasetError (unknown, invalid), AgentUnavailable, Fenced, and
        HeadraceError in a forked process or a DataLoader's worker.
        """
        count = index(rows)
        if not 1 <= count <= MAX_ROWS:
            raise ValueError(f"rows={rows}; a batch has 1 to {MAX_ROWS} rows")
        if ack not in ("step", "auto"):
            raise ValueError(f'ack={ack!r}; it is "step" or "auto"')
        if max_wait is not None and not max_wait > 0:
            raise ValueError(f"max_wait={max_wait!r}; it is seconds, more than 0, or None")
        if isinstance(columns, str):
            raise ValueError(f"columns={columns!r}; it is a list of names, as in [{columns!r}]")
        request: dict[str, Any] = {
            "dataset": self.name,
            "rows": count,
            "columns": None if columns is None else [str(name) for name in columns],
            "max_wait_ms": None if max_wait is None else max(1, round(max_wait * 1000)),
            "ack": ack,
            "track": bool(track),
        }
        return Stream(init(), request)

    def __repr__(self) -> str:
        return f"Dataset({self.name!r})"


def dataset(name: str) -> Dataset:
    """The dataset of that name: ``headrace.dataset("clicks").batches(1024)``."""
    return Dataset(name)
