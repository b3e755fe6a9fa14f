"""The pause of yields while somebody saves a shared model (docs/CUTS.md).

The agent begins a pause with PAUSE_YIELDS. From then on next() hands out no batch,
except one that its thread may need to finish a step. When all yielded batches are
stepped, the control thread sends YIELDS_PAUSED after the STEPs. The pause ends with
PAUSE_YIELDS off, or when a control connection begins.

A thread that asks for a batch during a pause, while this process has unstepped ones:

    it steps them itself     gets the batch: it may gather several for one step
    another thread steps     waits for PATIENCE, or four times what a batch takes here
                             if that is longer; then it gets the batch, because the
                             thread that steps may be waiting for it
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from threading import RLock, get_ident
from typing import Any

from ._channel import Channel
from ._errors import HeadraceError

PATIENCE = 1.0  # seconds


class Yields:
    """The pause that is on in this process, if one is."""

    def __init__(self, lock: RLock, channels: Callable[[], Iterable[Channel]], ring: Callable[[], None]) -> None:
        self.cut = ""  # 16 hex digits; empty: none is on
        self.why = ""
        #: YIELDS_PAUSED must be sent as soon as it is true.
        self.due = False
        self._lock = lock  # the control's: during a pause yields are counted under it
        self._channels = channels
        self._ring = ring
        self._moved = 0.0  # when anything was stepped, or the pause began

    # The control thread.

    def told(self, payload: dict[str, Any]) -> None:
        """PAUSE_YIELDS came."""
        cut = str(payload.get("cut", ""))
        with self._lock:
            if payload.get("on"):
                self.cut, self.why, self.due = cut, str(payload.get("why", "")), True
                self._moved = time.monotonic()
                for channel in self._channels():
                    channel.yields_paused = True
            elif cut == self.cut:
                self._end()

    def connection_begins(self) -> None:
        """Ends the pause: another agent may not know of it. The caller holds the lock."""
        if self.cut:
            self._end()

    def _end(self) -> None:
        self.cut, self.due = "", False
        for channel in self._channels():
            channel.yields_paused = False
            channel.changed.set()

    def reached(self) -> str:
        """The cut to send YIELDS_PAUSED for now; empty: none. It is returned once. The
        caller holds the lock, and has sent all steps."""
        if not self.due or any(map(_unstepped, self._channels())):
            return ""
        self.due = False
        return self.cut

    def stepped(self) -> None:
        """The caller holds the lock."""
        self._moved = time.monotonic()

    # The iterating threads.

    def enter(self, channel: Channel, number: int) -> None:
        """Waits until batch `number` may be yielded. The caller has counted it as yielded
        already; while this waits, it is not counted. Raises the error that ends the stream.
        """
        me, began = get_ident(), time.monotonic()
        try:
            while True:
                with self._lock:
                    channel.yielded = number - 1
                    if time.monotonic() < channel.trust and (not channel.yields_paused or self._needs(me)):
                        channel.yielded = number
                        return
                self._ring()
                if channel.fault is not None:
                    raise channel.fault
                if channel.closed:
                    raise HeadraceError("the stream is closed")
                channel.changed.wait(0.1)
        finally:
            channel.yields_paused_seconds += time.monotonic() - began

    def _needs(self, me: int) -> bool:
        """Whether the thread may need another batch before it can step the yielded ones."""
        unstepped = [channel for channel in self._channels() if _unstepped(channel)]
        if any(me == (channel.stepper or channel.iterator) for channel in unstepped):
            return True
        if not unstepped or time.monotonic() - self._moved < max(PATIENCE, *(4 * _pace(c) for c in unstepped)):
            return False
        self._moved = time.monotonic()
        return True


def _unstepped(channel: Channel) -> int:
    return 0 if channel.closed or not channel.tracked else channel.yielded - channel.stepped


def _pace(channel: Channel) -> float:
    """Seconds that a batch takes."""
    return (channel.step_seconds + channel.wait_seconds) / max(1, channel.yielded)
