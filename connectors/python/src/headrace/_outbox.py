"""Messages and steps of this process that wait to be sent to its agent, in order.

step() sends the step in the caller's own thread. So a step has left the process when step()
returns, even if the process is killed the next moment. The exception are steps that follow
each other within THICK seconds. The control thread sends these together every LINGER seconds,
because a system call for each step would slow such a loop down by several percent.

A process that is killed loses the steps that it had not sent. In a `shared` model the step
file has them; without one, those batches come again. In the other model kinds the next process
goes back to a checkpoint, whose steps were sent. There LINGER is longer, because each send
wakes up agent and master and ends in an fsync.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from . import _messages as wire
from ._channel import Channel
from ._pause import Yields
from ._wire import Bell, ControlConnection

THICK = 0.002  # seconds between two steps
LINGER_SHARED = 0.01  # seconds between two sends of steps that come thick
LINGER = 0.05  # where the model is not shared, or a step file has them

# Stream, step, batches, through, more of the same step; and the number of steps in the run
# that ends with this one, each with as many batches.
Step = tuple[Channel, int, int, int, bool, int]
Item = Step | bytes


class Outbox:
    """The items that wait, and the connection that they leave by. Its lock is the control's:
    it guards the items and what is written to the connection."""

    def __init__(self, lock: threading.RLock, bell: Bell, yields: Yields) -> None:
        self.items: deque[Item] = deque()
        self.connection: ControlConnection | None = None  # None: the agent is gone
        self.step_runs = False  # the agent takes a run of steps as one message
        self.linger = LINGER_SHARED
        self.linger_until = 0.0
        self._lock = lock
        self._bell = bell
        self._yields = yields
        self._stepped = 0.0  # when the last step was said

    # Called by other threads.

    def post(self, item: bytes) -> None:
        """Leaves a message to send now. The caller holds the lock while it changes
        the stream's state and posts, so that take_back() sees both or neither."""
        self.items.append(item)
        self._bell.ring()

    def step_sent(self) -> bool:
        """Sends the one step that waits now, if it can be sent and no other step was said just
        before. The caller holds the lock.

        After a signal's exception it may be sent twice, which does no harm.
        """
        connection, now = self.connection, time.monotonic()
        thick = now - self._stepped < THICK
        self._stepped = now
        if self._yields.due:
            self._yields.stepped()
            return False  # YIELDS_PAUSED may have to follow it
        if thick or connection is None or len(self.items) != 1 or connection.pending:
            return False
        item = self.items[0]
        if isinstance(item, bytes):
            return False
        connection.send_now(self._leaves(item))
        self.items.popleft()
        return not connection.pending

    # The control thread.

    def send(self, connection: ControlConnection, now: float) -> None:
        """Sends all that waits. The caller holds the lock."""
        while self.items:
            item = self.items.popleft()
            if isinstance(item, bytes):
                connection.send(item)
            else:
                connection.send(self._leaves(item))
                self.linger_until = now + self.linger
        if self._yields.due and (cut := self._yields.reached()):
            connection.send(wire.encode(wire.YIELDS_PAUSED, 0, {"cut": cut}))

    def settled(self) -> bool:
        """Says whether nothing waits."""
        return not self.items and (self.connection is None or not self.connection.pending)

    def take_back(self) -> None:
        """Empties it for another connection. Its calls are kept where they wait for answers,
        and its steps become a part of the streams' state. The caller holds the lock."""
        for item in self.items:
            if not isinstance(item, bytes):
                channel, step, batches, through, _, run = item
                channel.said(step, batches, through, run)
        self.items.clear()

    def disconnect(self) -> None:
        """Closes the connection, if there is one. The caller holds the lock."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def _leaves(self, item: Step) -> bytes:
        """STEP, about to be sent: its stream knows of it before the answer can come."""
        channel, step, batches, through, more, run = item
        channel.said(step, batches, through, run)
        if run == 1 or self.step_runs:
            return wire.encode_step(channel.number, step, batches, through, more, run)
        each = [(step - n, through - n * batches) for n in range(run - 1, -1, -1)]
        return b"".join([wire.encode_step(channel.number, s, batches, t) for s, t in each])
