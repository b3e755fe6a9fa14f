"""Records to trainers: leased shards, exact batches, every record accounted for.

    import headrace

    with headrace.dataset("clicks").batches(1024) as stream:
        for b in stream:
            loss = model.learn(b["cat"], b["label"])
            stream.step()

A batch is *yielded* when the loop gets it; step() says that it is in the model.
What was yielded and not stepped when a trainer dies is delivered again.

File map:

    _settings.py  who this process is: arguments, environment
    _trainer.py   init(), the process's one attachment to its agent, forks
    _control.py   the background thread: steps out, answers in, reconnects
    _watchdog.py  how long a process may go on without its agent
    _channel.py   a stream as its two threads share it
    _dataset.py   Dataset.batches()
    _stream.py    Stream: iteration and steps
    _feed.py      the data connection: credits out, frames in
    _credits.py   how much is asked for ahead
    _batch.py     Batch
    _columns.py   Ragged, Bytes, schemas
    _frame.py     a frame's payload as numpy views
    _ranges.py    which records a batch is
    _messages.py  the socket's messages
    _wire.py      a control connection that never blocks
    _receive.py   reading frames; a signal never loses a byte
    _hash.py      hash64
    _shuffle.py   permutation
    _cli.py       the command

Threads: init(), dataset() and Dataset.batches() may be called from any thread.
A Stream is iterated by one thread at a time; its other methods, and those of its
batches, from any. Forked processes can use none of it.
"""

from __future__ import annotations

from ._batch import Batch
from ._columns import Bytes, Column, Ragged
from ._dataset import Dataset, dataset
from ._errors import (
    AgentUnavailable,
    DatasetError,
    Fenced,
    HeadraceError,
    ProtocolError,
    UnsteppedWarning,
)
from ._hash import hash64
from ._ranges import Range
from ._shuffle import permutation
from ._stream import Stats, Stream
from ._trainer import Trainer, init, shutdown
from ._version import __version__

__all__ = [
    "AgentUnavailable",
    "Batch",
    "Bytes",
    "Column",
    "Dataset",
    "DatasetError",
    "Fenced",
    "HeadraceError",
    "ProtocolError",
    "Ragged",
    "Range",
    "Stats",
    "Stream",
    "Trainer",
    "UnsteppedWarning",
    "__version__",
    "dataset",
    "hash64",
    "init",
    "permutation",
    "shutdown",
]
