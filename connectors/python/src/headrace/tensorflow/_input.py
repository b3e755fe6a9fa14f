"""dataset(): a stream as a tf.data.Dataset."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import tensorflow as tf
from headrace._batch import Batch
from headrace._channel import Signal
from headrace._columns import Column
from headrace._dataset import Dataset
from headrace._dataset import dataset as dataset_named
from headrace._errors import HeadraceError
from headrace._stream import Stream
from headrace._trainer import Trainer, init

from . import _elements
from ._cluster import init_by_task

log = logging.getLogger("headrace")

_inputs: dict[tuple[Any, ...], Input] = {}
_lock = threading.Lock()


class Input:
    """The stream below one or more tf.data.Datasets of this process.

    A new iteration goes on where the last one stopped. Batches that the last one had pulled
    and nobody stepped are given back first: their records come again.
    """

    def __init__(self, trainer: Trainer, dataset: Dataset, rows: int, more: dict[str, Any]) -> None:
        self._trainer = trainer
        self._dataset = dataset
        self._rows = rows
        self._more = more
        self._stream: Stream | None = None
        self._turn = 0  # of the iteration that may ask for batches
        self._opening = threading.Lock()
        self._pulling = False
        self._asking = threading.Lock()  # held by the thread that asks the stream
        self._pulled = Signal()  # set after an iteration has asked it
        #: The error that ended the last iteration. TensorFlow passes on only its text.
        self.error: Exception | None = None
        self.columns = self._schema()

    def _schema(self) -> tuple[Column, ...]:
        """Returns the dataset's columns, without asking for a row."""
        request = self._dataset._request(self._rows, self._more.get("columns"), True)
        channel = self._trainer.open(request)
        self._trainer.close_channel(channel)
        if channel.virtual_ranks:
            raise ValueError(
                f"dataset {self._dataset.name!r} is bit_exact: several batches are one step of it. Iterate "
                f"headrace.dataset({self._dataset.name!r}).steps({self._rows}) in a loop of your own"
            )
        return channel.columns

    def __repr__(self) -> str:
        if self._stream is not None:
            return f"Input({self._stream!r})"
        return f"Input({self._dataset.name!r}, {self._rows} rows a batch, not opened yet)"

    @property
    def stream(self) -> Stream:
        """The stream. The first call opens it."""
        with self._opening:
            if self._stream is None:
                self._stream = self._dataset.batches(self._rows, **self._more)
            return self._stream

    def step(self, step: int | None = None, *, batches: int | None = None, through: int | None = None) -> int:
        """Does what Stream.step() does. Default: the oldest unstepped batch, although TensorFlow may
        have pulled more of them ahead."""
        if batches is None and through is None:
            batches = 1
        return self.stream.step(step, batches=batches, through=through)

    @property
    def unstepped(self) -> int:
        """Batches that TensorFlow has pulled and nobody stepped."""
        return 0 if self._stream is None else self._stream.unstepped

    def give_back(self) -> int:
        """Gives back the batches that TensorFlow has pulled and nobody stepped: their records
        come again. Returns the number of rows. Iterations that are under way end: begin a
        new one."""
        if self._stream is None:
            return 0
        self._turn += 1
        if not self._stream.unstepped and not self._pulling:
            return 0
        rows = self._stream.give_back()
        if rows:
            log.info("%d rows that TensorFlow had pulled ahead were given back: they come again", rows)
        return rows

    def ready(self, seconds: float = 0.0) -> bool:
        """Whether the next element of the iteration is there, or the end of the input. Waits for
        it so many seconds at most, as Stream.ready() does.

        Call it in the thread that trains, after you have stepped all that you trained. A batch
        that is not stepped counts as one that TensorFlow has pulled ahead, so the answer is
        True. With take() it may wait for a batch that the iteration does not ask for.
        """
        until = time.monotonic() + seconds
        while self.stream._channel.tracked and not self.unstepped:
            left = max(0.0, until - time.monotonic())
            if self._asking.acquire(blocking=False):
                try:
                    return self.unstepped > 0 or self.stream.ready(left)
                finally:
                    self._asking.release()
            if not left:
                return False
            self._pulled.wait(min(left, 60.0))  # a lock refuses very large timeouts
        return True

    def state_dict(self, step: int | None = None) -> dict[str, Any]:
        """Does what Stream.state_dict() does."""
        return self.stream.state_dict(step)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Does what Stream.load_state_dict() does."""
        self.stream.load_state_dict(state)

    def close(self) -> None:
        """Does what Stream.close() does."""
        self._turn += 1
        if self._stream is not None:
            self._stream.close()

    @property
    def _over(self) -> bool:
        closed = self._stream is not None and self._stream._channel.closed
        return closed or self._trainer.control.fault is not None or self._trainer is not init()

    def dataset(self, numbered: bool = False) -> tf.data.Dataset:
        """A tf.data.Dataset of the stream; see the function dataset()."""
        columns = self.columns
        flat = tf.data.Dataset.from_generator(self._batches, output_signature=_elements.flat_spec(columns))
        made = flat.map(lambda *parts: _elements.assemble(columns, numbered, parts))
        options = tf.data.Options()
        options.experimental_optimization.inject_prefetch = False
        options.experimental_optimization.map_parallelization = False
        # Workers share the records by leases. Some strategies would let a worker drop all batches but each n-th one.
        options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
        made = made.with_options(options)
        made._headrace_input = self
        return made

    def _batches(self) -> Iterator[tuple[Any, ...]]:
        """One iteration. TensorFlow calls it, in threads of its own."""
        self.error = None
        self.give_back()
        turn = self._turn
        stream = self.stream
        while True:
            try:
                batch = self._pull(stream)
            except Exception as error:
                if turn == self._turn:
                    self.error = error
                    raise
                return  # give_back() has ended this iteration
            if batch is None:
                return
            if turn != self._turn:
                raise HeadraceError("a newer iteration of this dataset has begun: this one is over")
            yield _elements.flat(batch, self.columns)

    def _pull(self, stream: Stream) -> Batch | None:
        try:
            with self._asking:
                self._pulling = True
                try:
                    return next(stream, None)
                finally:
                    self._pulling = False
        finally:
            self._pulled.set()


def dataset(
    name: str | Dataset,
    rows: int,
    *,
    columns: Iterable[str] | None = None,
    max_wait: float | None = None,
    numbered: bool = False,
    **more: Any,
) -> tf.data.Dataset:
    """A dataset as a tf.data.Dataset of dicts: column -> tensor of `rows` rows.

    A column with values of any length is a RaggedTensor, strings are tf.string, and a
    column with ``missing: mask`` has NAME.mask beside it. The last batch may be shorter,
    so element_spec has None rows. max_wait, more: as in Dataset.batches().

    Nothing is pulled ahead unless you say so with prefetch() or a parallel map(): the
    agent reads and decodes ahead in a process of its own. ``input_of(dataset)`` gives the
    `Input`. Call ``input_of(dataset).step()`` after each batch that is in the model. Batches
    may be pulled ahead; step() counts them in order. If shuffle(), batch(), repeat() or the
    like come after dataset(), input_of() refuses them.

    numbered=True: each element has its batch's number as "batch_number", for
    ``step(through=number)``.

    Called again in the same process with the same arguments (an Estimator calls input_fn
    for each train()), it goes on with the same stream. Where TF_CONFIG is set, rank and
    world size come from it.

    Raises DatasetError, AgentUnavailable, ValueError.
    """
    if more.get("tail") == "pad":
        raise ValueError(
            'tail="pad" adds rows that are no data, and a tf.data.Dataset does not say which rows these are: read with '
            'headrace.dataset(...).batches(rows, tail="pad") in a loop of your own, and multiply the loss with '
            "batch.weight"
        )
    named = dataset_named(name) if isinstance(name, str) else name
    names = None if columns is None else tuple(columns)
    trainer = init_by_task()
    key = (named.name, rows, names, max_wait, tuple(sorted(more.items())))
    with _lock:
        found = _inputs.get(key)
        if found is None or found._over:
            found = _inputs[key] = Input(trainer, named, rows, {"columns": names, "max_wait": max_wait, **more})
    return found.dataset(numbered)
