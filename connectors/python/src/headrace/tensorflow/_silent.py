"""Saves while an input is silent.

TensorFlow waits for a batch inside a step. Nobody can save then: an update of the model that does
not need the batch, such as that of the global step, may already be made. So the thread that trains
waits for the batch before the step, and saves when it is time.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from ._input import Input

SILENT_SECONDS = 60.0  # without a batch, until what was trained is saved, if saves go by steps


class Saves:
    """When a save is due by time. seconds: between two saves; 0: they go by steps."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._due = 0.0
        self.begins()

    def begins(self) -> None:
        """A save begins, or the training: the next save is counted from here."""
        self._due = time.monotonic() + self.seconds

    def due(self) -> bool:
        return self.seconds > 0 and time.monotonic() >= self._due

    def await_batch(self, input: Input, look: Callable[[], None]) -> None:
        """Waits for the next batch or the end. look saves if there is anything to save. It is called
        when a save is due by time, and again after as many seconds, until a batch has come."""
        every = self.seconds or SILENT_SECONDS
        at = self._due if self.seconds else time.monotonic() + every
        while not input.ready(max(0.0, at - time.monotonic())):
            look()
            at = time.monotonic() + every
