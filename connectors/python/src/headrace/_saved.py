"""Saved: a save that goes on in the background."""

from __future__ import annotations

import threading
from typing import Any

from ._errors import CheckpointError


class Saved:
    """A save under way. It goes on in the background."""

    def __init__(self, step: int, rows: int = 0) -> None:
        self.step = step
        self.rows = rows  # of this process, that are in it
        self.path: str | None = None  # of the checkpoint: its folder, once it is done
        self.cut: str | None = None  # its cut's id, once it is frozen
        self.exact: bool | None = None  # whether the model holds no more than the cut, once that is frozen
        self.memory: str | None = None  # the slot that holds it, once it is whole in memory
        self._over = threading.Event()
        self._held = threading.Event()  # it is in memory, or will not be
        self._error: BaseException | None = None
        self._seen = False

    @property
    def done(self) -> bool:
        """Nothing of the save is under way any more; `error` says whether it failed."""
        return self._over.is_set()

    @property
    def error(self) -> BaseException | None:
        """Why it failed; None while it goes on, and if it did not fail."""
        self._seen = self._seen or self.done
        return self._error

    @property
    def in_memory(self) -> bool:
        """The checkpoint is whole in this rank's memory: it outlives the process."""
        return self.memory is not None

    def wait_memory(self, timeout: float | None = None) -> str:
        """Waits until the checkpoint is whole in this rank's memory and gives the path
        of its slot. Raises the save's error, and TimeoutError."""
        if not self._held.wait(timeout):
            raise TimeoutError(f"the save of step {self.step} is not in memory after {timeout} s")
        if self.memory is None:
            self._over.wait(timeout)
            self._seen = True
            raise self._error or CheckpointError(f"the save of step {self.step} went to storage only")
        return self.memory

    def wait(self, timeout: float | None = None) -> str:
        """Waits for the end and gives the checkpoint's path: its folder, or with
        storage=False its slot. If a newer save took its place on the way to storage, the
        path is that one's. Raises the save's error, and TimeoutError, after which it
        still goes on."""
        if not self._over.wait(timeout):
            raise TimeoutError(f"the save of step {self.step} goes on after {timeout} s")
        self._seen = True
        if self._error is not None:
            raise self._error
        assert self.path is not None
        return self.path

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self._held.set()
        self._over.set()

    def _unseen(self) -> BaseException | None:
        """An error that nobody has looked at; it is looked at now."""
        error = None if self._seen else self._error
        self._seen = self._seen or self.done
        return error

    def __repr__(self) -> str:
        state: Any = "under way" if not self.done else f"failed: {self._error}" if self._error else self.path
        return f"Saved(step={self.step}, {state})"
