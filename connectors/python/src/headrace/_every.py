"""Which saves of save_every() are due, and what is left for the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: Advice for a program that calls save_every() and ends without a close: its last rows are in no checkpoint.
CLOSE = "use `with` or ck.close(): then the last step is saved, too"


class Every:
    """saved: a step that needs no save. Every rank of a group knows the same steps, so all
    decide alike; whether a save fails decides nothing, because ranks hear of that at different
    times."""

    def __init__(self, saved: int) -> None:
        self._saved = saved
        self._left: tuple[int, Callable[[], Any]] | None = None

    @staticmethod
    def check(steps: int) -> None:
        """Raises ValueError."""
        if isinstance(steps, bool) or not isinstance(steps, int) or steps < 1:
            raise ValueError(f"save_every({steps!r}, ...): how many steps lie between two saves, at least 1")

    def due(self, steps: int, step: int) -> bool:
        """Says whether a multiple of `steps` has been passed since the last save."""
        return step // steps > self._saved // steps

    def later(self, step: int, save: Callable[[], Any]) -> None:
        """save() saves this step, if no later one comes."""
        self._left = (step, save)

    def saved(self, step: int) -> None:
        """A save of this step to storage has begun."""
        self._saved, self._left = step, None

    def last(self, reported: int) -> None:
        """Saves what is left, if no save has it. If a step was reported after it, the state may hold more or less
        than that step: then nothing is saved."""
        left, self._left = self._left, None
        if left is not None and left[0] == reported > self._saved:
            left[1]()
