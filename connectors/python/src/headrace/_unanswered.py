"""How long the steps of a stream have been without an answer.

A step of a `shared` model that the master has not answered survives the processes of its
node, but not the node. So next() waits if the oldest such step has been unanswered for too
long. Then a lost node costs at most the steps of that time.

The control thread looks at each of its turns. A step counts from the first look after it,
so a wait begins up to the time between two turns late: a tenth of the TTL, 1 s at most.
"""

from __future__ import annotations

import math
from collections import deque


class Unanswered:
    """The steps of one stream that have no answer yet. Times are time.monotonic()."""

    __slots__ = ("_marks", "bound")

    def __init__(self) -> None:
        self.bound = math.inf  # seconds
        self._marks: deque[tuple[int, float]] = deque()  # stepped through this batch, as was seen at that time

    def look(self, now: float, stepped: int, acked: int) -> None:
        """The control thread's turn. acked: through which batch the steps are durable."""
        marks = self._marks
        while marks and marks[0][0] <= acked:
            marks.popleft()
        if stepped > (marks[-1][0] if marks else acked):
            marks.append((stepped, now))

    @property
    def until(self) -> float:
        """When next() has to wait, if no answer comes before."""
        return self.since + self.bound

    @property
    def since(self) -> float:
        """When the oldest unanswered step was seen; inf: there is none."""
        try:
            return self._marks[0][1]
        except IndexError:
            return math.inf
