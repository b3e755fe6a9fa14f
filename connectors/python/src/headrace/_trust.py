"""Until when the streams of this process may yield batches.

A stream may yield while the agent's session is known to be good. In a `shared` model its
steps must be answered too, within `max_unanswered`.
"""

from __future__ import annotations

import logging
import time

from ._channel import Channel
from ._errors import HeadraceError
from ._watchdog import Watchdog
from ._wire import Bell

log = logging.getLogger("headrace")


class Trust:
    """Passes on to each stream what the watchdog knows about the agent."""

    def __init__(self, channels: dict[int, Channel], bell: Bell) -> None:
        self.watchdog = Watchdog(1.0, 0.0, shared=False)
        self._channels = channels
        self._bell = bell

    @property
    def until(self) -> float:
        """Until when the session is good at least, as far as we know (time.monotonic())."""
        return self.watchdog.trust

    # The iterating threads.

    def wait(self, channel: Channel) -> None:
        """Waits until the agent has answered that its session is good.

        Raises what ends the stream. The watchdog bounds the wait: it ends a process,
        or fails its streams, when the agent stays silent.
        """
        began, said = time.monotonic(), False
        try:
            while (now := time.monotonic()) >= channel.trust:
                if channel.fault is not None:
                    raise channel.fault
                if channel.closed:
                    raise HeadraceError("the stream is closed")
                if now >= self.until:
                    self.watchdog.eager = True
                    self._bell.ring()
                elif not said and now >= channel.unanswered.until:
                    said = True
                    _say_unanswered(channel, now)
                channel.changed.wait(0.1)
            if said:
                log.warning("%s: the steps were answered, after %.1f s: next() goes on", channel.open["dataset"],
                            now - began)  # fmt: skip
        finally:
            channel.yields_paused_seconds += time.monotonic() - began

    # The control thread.

    def extend(self) -> None:
        """Tells every stream until when it may yield, after an answer of the agent."""
        now = time.monotonic()
        self.tell_all(now)
        if self.watchdog.eager and now < self.until:
            self.watchdog.eager = False
            for channel in list(self._channels.values()):
                channel.changed.set()

    def tell_all(self, now: float) -> None:
        for channel in list(self._channels.values()):
            self.tell(channel, now)

    def tell(self, channel: Channel, now: float) -> None:
        """Tells one stream."""
        trust = self.until
        if self.watchdog.shared and channel.tracked:
            unanswered = channel.unanswered
            unanswered.bound = channel.open.get("max_unanswered") or self.watchdog.ttl
            unanswered.look(now, channel.stepped, channel.acked)
            trust = min(trust, unanswered.until)
        waited, channel.trust = now >= channel.trust, trust
        if waited and now < trust:
            channel.changed.set()


def _say_unanswered(channel: Channel, now: float) -> None:
    log.warning(
        "%s: next() waits, because steps have been unanswered for %.1f s (max_unanswered is %.1f s). If this node "
        "were lost now, %d stepped batches would come again",
        channel.open["dataset"], now - channel.unanswered.since, channel.unanswered.bound,
        channel.stepped - channel.acked,
    )  # fmt: skip
