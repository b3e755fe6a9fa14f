"""How long this process may go on without its agent.

When the agent answered the PING that was sent at `heard`, its session with the master was
good for `session` more seconds. After that, the agent's margin is left, a tenth of the TTL,
until the master gives our rows to others (docs/GUARANTEES.md, guarantee 6).

While an agent answers, it ends us if that is necessary, and we do not end ourselves. It also
answers when its session is over, if we hold no rows that go to others. So in a `shared`
model the last PING is sent when the session may be over. If it has no answer a twentieth of
the TTL later, we must have stopped, even if other PINGs were answered just before. In the
other model kinds only an agent that is silent counts as gone.

This is a Python thread: extension code that holds the interpreter lock delays the watchdog
too. After a pause in which the session may have ended, it asks once more and waits for
`GRACE` seconds, because the agent may well be alive.
"""

from __future__ import annotations

import math
import os
import signal

GRACE = 0.25  # seconds, at most: of a short TTL the time that the last PING has


class Watchdog:
    """Deadlines from PINGs that were answered. Times are time.monotonic()."""

    def __init__(self, ttl: float, now: float, shared: bool) -> None:
        self.ttl, self.shared = ttl, shared
        self.heard = now  # SEND time of the newest PING that was answered
        self.session = ttl
        self._sent = -math.inf  # SEND time of the newest PING
        self._asked: float | None = None  # and of the oldest that was not answered
        self._turn = now
        self._grace = now
        self.eager = False  # a next() waits for the answer: ask ten times as often

    @property
    def interval(self) -> float:
        """Seconds from one PING to the next, at most."""
        return self.ttl / 5

    @property
    def last(self) -> float:
        """Seconds that the last PING has to be answered."""
        return self.ttl / 20

    @property
    def trust(self) -> float:
        """Until when the agent's session is good at least, as far as we know."""
        return self.heard + min(self.ttl - self.ttl / 10, self.session)

    @property
    def deadline(self) -> float:
        """Until when this process waits for an agent that is gone or silent."""
        return self.heard + min(self.ttl, self.session) - self.ttl / 10

    @property
    def due(self) -> float:
        """When to send the next PING: one of them when the session may be over."""
        due = self._sent + (self.interval / 10 if self.eager else self.interval)
        return min(due, self.trust) if self._sent < self.trust else due

    def sent(self, now: float) -> None:
        self._sent = now
        if self._asked is None:
            self._asked = now

    def answered(self, sent: float, session: float) -> None:
        if sent < self.heard:
            return
        self.heard, self.session = sent, max(0.0, session)
        self._asked = self._sent if sent < self._sent else None

    def ends(self, connected: bool) -> float:
        """When this process has to stop if it hears nothing more."""
        if not connected:
            return self.deadline
        ends = math.inf
        if self._asked is not None:
            ends = max(self.deadline, self._asked + self.interval)
        if self.shared and self.session > 0:
            ends = min(ends, self.trust + self.last)
        return max(ends, self._grace)

    def expired(self, now: float, connected: bool) -> bool:
        """Called on every turn of the control thread, when it has heard what came."""
        if now - self._turn > self.ttl / 2:
            self._grace = now + min(GRACE, self.last)  # we were stopped, not the agent
        self._turn = now
        return now >= self.ends(connected)

    def patience(self, now: float) -> float:
        """Seconds that the control thread may sleep."""
        return max(0.001, min(self.interval / 2, self.due - now, self.ends(True) - now))


def end_process(why: str) -> None:
    """Ends this process as kill -9 would, with one line of explanation."""
    os.write(2, f"headrace: {why}: ending process {os.getpid()}\n".encode())
    os.kill(os.getpid(), signal.SIGKILL)
