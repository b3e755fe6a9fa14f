"""Slots that were compared with their checksums, for a restore.

A slot stays pinned and mapped until the restore, so the compared bytes are restored. The
comparison begins as soon as there is a Checkpointer, in the background. So it has often
ended when a program has built its model and calls restore().
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from . import _checksum, _copying
from ._errors import CheckpointError
from ._slots import Reading

if TYPE_CHECKING:
    from ._memory import InMemory


class _Check:
    """The check of one slot: whether it is done, and what it found."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.done = False
        self.fault: str | None = None
        self.reading: Reading | None = None  # if it has no fault, until somebody takes it


class Verified:
    """What was compared so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._checks: dict[tuple[str, str], _Check] = {}  # by slot and cut
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self, found: list[InMemory], all_: bool) -> None:
        """Compares them in the background, in this order. all_: else only until one is whole."""

        def run() -> None:
            with contextlib.suppress(_checksum.Stopped):
                for manifest in found:
                    if self.fault(manifest) is None and not all_:
                        return

        if found:
            thread = threading.Thread(target=run, name="headrace-verify", daemon=True)
            with contextlib.suppress(RuntimeError):  # there are too many: the restore does it
                thread.start()
                self._thread = thread

    def wait(self) -> None:
        """Waits until what was begun in the background has ended."""
        if self._thread is not None:
            self._thread.join()

    def fault(self, manifest: InMemory) -> str | None:
        """None: it is as it was written."""
        with self._lock:
            check = self._checks.setdefault((manifest.slot, manifest.cut_id), _Check())
        with check.lock:
            if not check.done:
                check.fault, check.reading = self._compared(manifest)
                check.done = True
            return check.fault

    def _compared(self, manifest: InMemory) -> tuple[str | None, Reading | None]:
        try:
            reading = opened(manifest)
        except CheckpointError as error:
            return str(error), None
        try:
            fault = reading.fault(_copying.threads(), self._stop.is_set)
        except BaseException:
            reading.close()
            raise
        if fault is not None:
            reading.close()
            return fault, None
        return None, reading

    def take(self, manifest: InMemory) -> Reading | None:
        """A slot that was compared and has no fault; the caller has to close it."""
        with self._lock:
            check = self._checks.pop((manifest.slot, manifest.cut_id), None)
        if check is None:
            return None
        with check.lock:
            return check.reading

    def close(self) -> None:
        """Lets go of all slots that nobody has taken."""
        self._stop.set()
        self.wait()
        self._thread = None
        self._stop.clear()
        with self._lock:
            checks, self._checks = self._checks, {}
        for check in checks.values():
            if check.reading is not None:
                check.reading.close()


def opened(manifest: InMemory) -> Reading:
    """The slot of a checkpoint, pinned. Raises CheckpointError."""
    try:
        reading = Reading(manifest.slot)
    except (CheckpointError, OSError, ValueError) as error:
        raise CheckpointError(f"{manifest.slot}: {error}") from error
    if reading.about["manifest"]["cut"]["id"] != manifest.cut_id:
        reading.close()
        raise CheckpointError(f"{manifest.slot}: another checkpoint lies there now")
    return reading
