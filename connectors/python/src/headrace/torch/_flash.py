"""Checkpoints in memory of a framework that loads its checkpoints from files.

A framework's trainer is asked for its state after a step. The state is copied into memory,
and goes on to storage now and then. restore() writes it to a file, in the form in which the
framework loads its own checkpoints.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Any

from headrace._checkpoint import Checkpointer
from headrace._stream import Stream

Write = Callable[[Any, str], str]  # writes a state below a folder, and returns the path


class Flash:
    """Saves the state of a trainer each `memory_every` steps in memory, and each `storage_every`
    steps on storage too. storage_every=0: only when training ends."""

    def __init__(
        self, stream: Stream, dir: str | os.PathLike[str] | None, memory_every: int, storage_every: int
    ) -> None:
        for name, n in (("memory_every", memory_every), ("storage_every", storage_every)):
            if isinstance(n, bool) or not isinstance(n, int) or n < 0:
                raise ValueError(f"{name}={n!r}; it is a number of steps, or 0")
        if storage_every and not memory_every:
            raise ValueError(f"storage_every={storage_every} without memory_every: say how often to save in memory")
        if memory_every and dir is None:
            raise ValueError(f"memory_every={memory_every} without a folder: say where checkpoints lie on storage")
        self._memory_every, self._storage_every = memory_every, storage_every
        self._stored = 0
        #: Where restore() found what it went back to: "memory", "peer" or "storage"; "": nowhere.
        self.source = ""
        self._folder = ""
        trainer = stream._trainer
        name = hashlib.sha256(f"{trainer.job}\n{os.path.abspath(dir or '')}".encode()).hexdigest()[:16]
        self._restored = os.path.join(tempfile.gettempdir(), f"headrace-{os.getuid()}-restored-{name}-{trainer.rank}")
        self._checkpointer = None if dir is None else Checkpointer(dir, stream, memory=memory_every > 0)

    @property
    def checkpointer(self) -> Checkpointer:
        """That of the folder."""
        if self._checkpointer is None:
            raise ValueError("restore() without a folder: HeadraceCallback(loader, dir, memory_every=...)")
        return self._checkpointer

    def stepped(self, step: int, state: Callable[[], Any]) -> None:
        """Saves what state() gives if it is time."""
        self._loaded()
        storage = self._storage_every > 0 and step % self._storage_every == 0
        if storage or (self._memory_every and step % self._memory_every == 0):
            self._save(step, state, storage)

    def ended(self, step: int, state: Callable[[], Any]) -> None:
        """Training has ended: the last step goes to storage. A failed save is raised."""
        self._loaded()
        if self._memory_every and self._checkpointer is not None:
            if step > self._stored:
                self._save(step, state, True)
            self._checkpointer._finish()
            self._checkpointer._raise_unseen()

    def restore(self, write: Write) -> str | None:
        """Goes back to the newest checkpoint. Returns the path that the framework loads; None:
        there is none. write() is called for a state that we saved; a checkpoint that the
        framework has written itself is loaded where it lies."""
        restored = self.checkpointer.restore()
        if restored is None:
            return None
        self.source = restored.source
        if restored.source == "storage":
            self._stored = restored.step
        if restored.state is None:
            return restored.path
        # It has one name for each rank: a process that was killed before its first step has left
        # a copy of the model there.
        if os.path.lexists(self._restored):
            shutil.rmtree(self._restored)
        os.mkdir(self._restored, 0o700)
        self._folder = self._restored
        return write(restored.state, self._folder)

    def _save(self, step: int, state: Callable[[], Any], storage: bool) -> None:
        self.checkpointer.save(step, state(), storage=storage)
        if storage:
            self._stored = step

    def _loaded(self) -> None:
        """The framework has read what restore() wrote."""
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""
