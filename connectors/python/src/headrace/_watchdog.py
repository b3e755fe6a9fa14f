"""How long this process may go on without its agent.

The agent's session with the master was good for `session` more seconds when it
answered the PING that was sent at `heard`; a tenth of the TTL earlier we must
have stopped, because the master then gives our rows to others (design,
guarantee 6). While an agent answers, ending us is its business, not ours.

This is a Python thread: extension code that holds the interpreter lock for
longer than the TTL holds up the watchdog too. After such a pause it first asks
the agent once more, for `GRACE` seconds, because the agent may well be alive.
"""

from __future__ import annotations

import os
import signal

GRACE = 0.25  # seconds


class Watchdog:
    """Deadlines from PINGs that were answered. Times are time.monotonic()."""

    def __init__(self, ttl: float, now: float) -> None:
        self.ttl = ttl
        self.heard = now  # SEND time of the newest PING that was answered
        self.session = ttl
        self._asked: float | None = None  # SEND time of the oldest PING that was not
        self._turn = now
        self._grace = now

    @property
    def interval(self) -> float:
        """Seconds from one PING to the next."""
        return self.ttl / 5

    @property
    def deadline(self) -> float:
        return self.heard + min(self.ttl, self.session) - self.ttl / 10

    def sent(self, now: float) -> None:
        if self._asked is None:
            self._asked = now

    def answered(self, sent: float, session: float) -> None:
        if sent >= self.heard:
            self.heard, self.session = sent, max(0.0, session)
        self._asked = None

    def expired(self, now: float, connected: bool) -> bool:
        """Called on every turn of the control thread."""
        if now - self._turn > self.ttl / 2:
            self._grace = now + GRACE  # we were stopped, not the agent
        self._turn = now
        if connected and (self._asked is None or now < self._grace or now - self._asked < self.interval):
            return False
        return now > self.deadline

    def patience(self, now: float) -> float:
        """Seconds that the control thread may sleep."""
        seconds = self.interval / 2
        return seconds if self._asked is None else max(0.01, min(seconds, self.deadline - now))


def end_process(why: str) -> None:
    """Ends this process as kill -9 would, with one line of explanation."""
    os.write(2, f"headrace: {why}: ending process {os.getpid()}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)
