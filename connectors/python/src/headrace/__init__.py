"""Records to trainers: leased shards, exact batches, every record accounted for.

    import headrace

    with headrace.dataset("clicks").batches(1024) as stream:
        for b in stream:
            loss = model.learn(b["cat"], b["label"])
            stream.step()

A batch is *yielded* when the loop gets it; step() says that it is in the model.
If a trainer dies, batches that were yielded and not stepped are delivered again.

    ck = headrace.Checkpointer("/ckpt", stream)
    restored = ck.restore()
    ...
    ck.save(step, {"model": weights})

saves the weights with the exact records that are in them.

File map:

    _settings.py  who this process is: arguments, environment
    _trainer.py   init(), the process's one attachment to its agent, forks
    _errors.py    the exceptions
    _pause.py     the pause of yields while a shared model is saved
    _control.py   the background thread: answers in, finding the agent again
    _hello.py     the first and the last messages of its connection
    _outbox.py    messages and steps that wait to be sent
    _trust.py     until when a stream may yield
    _advice.py    warnings when next() waits for this program itself
    _calls.py     questions to the master, until they are answered
    _watchdog.py  how long a process may go on without its agent
    _unanswered.py  how long steps have been without an answer
    _stepfile.py  steps of a shared model, in a file that outlives this process
    _channel.py   the state of a stream that its two threads share
    _dataset.py   Dataset.batches()
    _stream.py    Stream: iteration and steps
    _rounds.py    a stream whose batches are parts of rounds
    _pad.py       short batches at their full size
    _steps.py     Steps: one step of a bit_exact dataset at a time
    _feed.py      the data connection: credits out, frames in
    _credits.py   how many batches a stream asks for ahead
    _batch.py     Batch
    _columns.py   Ragged, Bytes, schemas
    _frame.py     a frame's payload as numpy views
    _ranges.py    which records are in a batch
    _claim.py     the same, for a server that stores it with an update
    _messages.py  the socket's messages
    _wire.py      a control connection that never blocks
    _receive.py   reading frames; a signal never loses a byte
    _regions.py   frames in shared memory
    _checkpoint.py  Checkpointer: what a program calls
    _every.py       when save_every() saves
    _writing.py     a checkpoint into a folder
    _parts.py       a checkpoint that several ranks write
    _bucket.py      checkpoints in a bucket
    _durable.py     files and folders that must be on the disk
    _tostorage.py   from memory to storage
    _staged.py      a copy in memory that is removed when it is on storage
    _binding.py     a checkpoint that a framework writes
    _saved.py     Saved
    _covered.py   which rows of this process are in a checkpoint
    _flash.py     saves to memory, and from there to storage
    _memory.py    a rank's slots: which one is written
    _copying.py   copies of a whole state, by several threads
    _checksum.py  checksums of large memory, by several threads
    _verified.py  slots that were compared with their checksums, for a restore
    _peers.py     checkpoints in the memory of other nodes
    _image.py     a state as a safetensors image
    _slots.py     slots: files that outlive the process
    _restore.py   going back to a checkpoint
    _load.py      reading a checkpoint without training
    _retain.py    which old checkpoints are removed
    _cuts.py      ask, bind, drop, restore
    _cut.py       which records are in a model: reading a cut
    _state.py     a saved state: a tree and arrays
    _pickled.py   objects in files of their own
    _files.py     parts of a state in files of their own
    _delta.py     checkpoints with only the changed rows of large tables
    _basis.py     reading a delta: its base
    _manifest.py  a checkpoint on storage: reading and verifying it
    _publish.py   writing a manifest, so that power may fail at any call
    _remove.py    removing a checkpoint
    _push.py      push(), Pusher: records into a landing
    _chunk.py     the form of pushed records
    _upload.py    chunks that this process puts into a bucket itself
    _master.py    requests to the master, for processes that push
    _hash.py      hash64
    _shuffle.py   permutation
    _ended.py     the file by which a TensorFlow chief says that the job has ended
    _cli.py       the command
    torch/        headrace.torch, an import of its own
    ray.py        headrace.ray, another one
    tensorflow/   headrace.tensorflow, likewise

Threads: init(), dataset() and Dataset.batches() may be called from any thread.
A Stream is iterated by one thread at a time; its other methods, and those of its
batches, from any. Forked processes can use none of it.
"""

from __future__ import annotations

from ._batch import Batch
from ._checkpoint import Checkpointer
from ._claim import Applied, Claim, Take
from ._columns import Bytes, Column, Ragged
from ._cuts import Cut
from ._dataset import Dataset, dataset
from ._errors import (
    AgentUnavailable,
    CheckpointError,
    DatasetError,
    Fenced,
    HeadraceError,
    MasterUnavailable,
    ProtocolError,
    PushError,
    RestoreNeeded,
    UnsteppedWarning,
    WorldChanged,
)
from ._hash import hash64
from ._load import load
from ._pickled import Pickled
from ._push import Pushed, Pusher, Transaction, push
from ._ranges import Range
from ._restore import Restored
from ._saved import Saved
from ._shuffle import permutation
from ._steps import Steps
from ._stream import Stats, Stream
from ._trainer import Trainer, init, shutdown
from ._version import __version__

__all__ = [
    "AgentUnavailable",
    "Applied",
    "Batch",
    "Bytes",
    "CheckpointError",
    "Checkpointer",
    "Claim",
    "Column",
    "Cut",
    "Dataset",
    "DatasetError",
    "Fenced",
    "HeadraceError",
    "MasterUnavailable",
    "Pickled",
    "ProtocolError",
    "PushError",
    "Pushed",
    "Pusher",
    "Ragged",
    "Range",
    "RestoreNeeded",
    "Restored",
    "Saved",
    "Stats",
    "Steps",
    "Stream",
    "Take",
    "Trainer",
    "Transaction",
    "UnsteppedWarning",
    "WorldChanged",
    "__version__",
    "dataset",
    "hash64",
    "init",
    "load",
    "permutation",
    "push",
    "shutdown",
]
