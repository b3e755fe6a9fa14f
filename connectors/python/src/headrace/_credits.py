"""How many batches a stream asks for ahead of its trainer.

Rows that an agent has sent cannot be stolen, and they come again if the trainer dies. So
a slow trainer asks for little: the batch in hand and one more. A fast one with small
batches asks for two frames of about 2 MiB. Then many batches share the cost of a frame,
and the next frame is on its way while this one is used.
"""

from __future__ import annotations

FRAME_BYTES = 2 << 20  # where an agent closes a frame
FRAME_SECONDS = 0.02  # of the trainer's own time that a frame may hold
MAX_BATCHES = 1024  # of a frame; two frames of them must fit into HELLO's `resume`


class Credits:
    """The window of one stream, from what its frames were like."""

    __slots__ = ("_batch_bytes", "_batch_seconds", "_most", "per_frame", "window")

    def __init__(self, most: int = 2 * MAX_BATCHES) -> None:
        self._most = most  # of window
        self._batch_bytes = 0.0
        self._batch_seconds = 0.0
        self.per_frame = 1  # batches
        self.window = 2  # batches that may be on their way or unyielded

    def received(self, batches: int, size: int) -> None:
        """A frame of that many batches and bytes has come."""
        self._batch_bytes = _blend(self._batch_bytes, size / batches)

    def used(self, batches: int, seconds: float) -> None:
        """The trainer took so long for that many batches, waiting not counted."""
        self._batch_seconds = _blend(self._batch_seconds, max(seconds / batches, 1e-6))
        by_size = FRAME_BYTES / max(self._batch_bytes, 1.0)
        by_time = FRAME_SECONDS / self._batch_seconds
        self.per_frame = max(1, min(self._most // 2, int(by_size), int(by_time)))
        self.window = 2 * self.per_frame


def _blend(old: float, new: float) -> float:
    return (old + new) / 2 if old else new
