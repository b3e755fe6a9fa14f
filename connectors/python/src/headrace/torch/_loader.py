"""Loader: a stream as torch's DataLoader and the frameworks take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import torch.utils.data
from headrace._batch import Batch
from headrace._dataset import Dataset, dataset
from headrace._errors import HeadraceError
from headrace._pad import PaddedBatch, PaddedRoundStream, PaddedStream
from headrace._rounds import RoundStream
from headrace._stream import Stream
from headrace._trainer import _NO_WORKERS, init

from ._tensors import Device, columns_as_tensors


class TensorBatch(dict[str, Any]):
    """A batch as a dict of tensors, with what a training loop asks of a batch."""

    #: The batch itself: its ranges, masks and numpy columns.
    batch: Batch | None = None

    @property
    def number(self) -> int:
        """Number of the batch in its stream, from 1."""
        return self._own.number

    @property
    def rows(self) -> int:
        return len(self._own)

    @property
    def last(self) -> bool:
        """The same as Batch.last."""
        return self._own.last

    @property
    def global_rows(self) -> int:
        """The same as Batch.global_rows."""
        return self._own.global_rows

    @property
    def _own(self) -> Batch:
        if self.batch is None:
            raise AttributeError("this dict is a copy that knows only the tensors: take them from the Loader itself")
        return self.batch

    @classmethod
    def of(cls, batch: Batch, device: Device = None) -> TensorBatch:
        """Makes tensors of a batch. One of a stream with tail="pad" gets a column `weight`."""
        columns: dict[str, Any] = {name: batch[name] for name in batch}
        if isinstance(batch, PaddedBatch):
            if "weight" in columns:
                raise ValueError('tail="pad" adds a column "weight", and the dataset has one: rename it in its spec')
            columns["weight"] = batch.weight
        made = cls(columns_as_tensors(columns, device))
        made.batch = batch
        return made


class Loader(torch.utils.data.IterableDataset[TensorBatch]):
    """An iterable of batches as dicts of tensors, which says what became of them.

        loader = Loader("clicks", 1024, device="cuda")
        for b in loader:
            ...
            loader.step(step)

    dataset: its name, or a `headrace.Dataset`. rows, and more, are those of
    `Dataset.batches()`. In a replicated model the default is ``rounds=True``, also for
    one process: then the end of the data is known although a batch that was fetched
    ahead is not stepped yet. device: where the tensors are; default the CPU, where they are
    views. Or give a stream that is open: ``Loader(stream=stream)``.

    tail="pad": a batch with fewer rows than asked is filled up with its own rows, and the
    column `weight` (float32) is 0 for those, 1 for the others: multiply the loss with it.
    It keeps shapes constant. The default, "short", leaves the batch as it is. "drop" trains
    full batches only, as in `Dataset.batches()`.

    It is an IterableDataset whose elements are whole batches, so a DataLoader takes it
    as ``DataLoader(Loader("clicks", 1024), batch_size=None)``. There is no need for one:
    the agent reads, decodes and prefetches in a process of its own. `num_workers` must
    be 0. The stream is opened when it is first used.

    state_dict() and load_state_dict() are Stream's: the records that are in the model.
    """

    def __init__(
        self,
        name: str | Dataset | None = None,
        rows: int | None = None,
        *,
        stream: Stream | None = None,
        device: Device = None,
        tail: Literal["short", "pad", "drop"] = "short",
        **more: Any,
    ) -> None:
        if (name is None) == (stream is None):
            raise ValueError("give a dataset and the rows of a batch, or stream=")
        if stream is None and rows is None and more.get("global_rows") is None:
            raise ValueError(f"say the rows of a batch, as in Loader({name!r}, 1024)")
        if stream is not None and (rows is not None or more):
            raise ValueError(f"rows and {', '.join(more) or 'options'} belong to the stream, which is open already")
        self._dataset = dataset(name) if isinstance(name, str) else name
        self._rows = rows
        self._more = more
        self._stream = stream
        self.device = device
        if tail not in ("short", "pad", "drop"):
            raise ValueError(f'tail={tail!r}; it is "short", "pad" or "drop"')
        if tail != "short":
            if stream is not None:
                raise ValueError(f'tail="{tail}" belongs to the stream, which is open already: batches(tail="{tail}")')
            self._more = {**more, "tail": tail}
        #: "pad": every batch has all its rows, and a column `weight`.
        self.tail = "pad" if _pads(stream) else tail

    def __repr__(self) -> str:
        if self._stream is not None:
            return f"Loader({self._stream!r}, tail={self.tail!r})"
        assert self._dataset is not None
        rows = self._more.get("global_rows") or self._rows
        return f"Loader({self._dataset.name!r}, {rows} rows a batch, tail={self.tail!r}, not opened yet)"

    @property
    def stream(self) -> Stream:
        """The stream, which is opened by the first call."""
        if self._stream is None:
            assert self._dataset is not None
            if "rounds" not in self._more and init().model == "replicated":
                self._more["rounds"] = True
            self._stream = self._dataset.batches(self._rows, **self._more)
        return self._stream

    def __iter__(self) -> Iterator[TensorBatch]:
        """Goes on where the last iteration stopped: there is one stream."""
        if torch.utils.data.get_worker_info() is not None:
            raise HeadraceError(f"a Loader cannot be iterated in a DataLoader's worker: {_NO_WORKERS}")
        stream = self.stream
        for batch in stream:
            yield TensorBatch.of(batch, self.device)

    def groups(self, size: int) -> Iterator[list[TensorBatch]]:
        """Lists of `size` batches, for gradient accumulation; the last one may be shorter.

            for group in loader.groups(4):
                for b in group: ...            # forward, backward
                optimizer.step()
                loader.step(step, batches=len(group))

        Every rank gets lists of the same lengths. A size above 1 needs rounds.
        """
        if size < 1:
            raise ValueError(f"size={size}; a group has at least one batch")
        if size > 1 and not isinstance(self.stream, RoundStream):
            raise ValueError(
                f"groups({size}) needs rounds: without them the end of the data is not told while a batch is "
                "unstepped, so the last group would wait for ever. Start the master with --model replicated, and "
                "leave out rounds=False"
            )
        group: list[TensorBatch] = []
        for batch in self:
            group.append(batch)
            if len(group) == size or batch.last:
                yield group
                group = []
        if group:
            yield group

    def step(self, step: int | None = None, *, batches: int | None = None) -> int:
        """Does what Stream.step() does: the oldest `batches` unstepped batches are in the model."""
        return self.stream.step(step, batches=batches)

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Does what Stream.state_dict() does."""
        return self.stream.state_dict(step)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Does what Stream.load_state_dict() does."""
        self.stream.load_state_dict(state)

    def close(self) -> None:
        """Does what Stream.close() does."""
        if self._stream is not None:
            self._stream.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._stream is not None:
            self._stream.__exit__(*error)

    def __getstate__(self) -> Any:
        raise HeadraceError(f"a Loader cannot be sent to a DataLoader's worker: {_NO_WORKERS}")


def _pads(stream: Any) -> bool:
    return isinstance(stream, (PaddedStream, PaddedRoundStream))


def refuse_pad(stream: Any, loss_applies_weight: bool) -> None:
    """Raises ValueError for padded batches whose loss would count the added rows."""
    if (_pads(stream) or (isinstance(stream, Loader) and stream.tail == "pad")) and not loss_applies_weight:
        raise ValueError(
            'this stream has tail="pad", so a batch may hold rows that are no data: multiply the loss with '
            'batch["weight"] and say loss_applies_weight=True, or use tail="short"'
        )
