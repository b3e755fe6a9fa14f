"""Which of this process's rows are in a checkpoint: what a Checkpointer says of the rest."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._trainer import Trainer

log = logging.getLogger("headrace")


class Covered:
    """Rows of this process that the checkpoints of a folder hold."""

    def __init__(self, trainer: Trainer, directory: str) -> None:
        self._trainer, self._directory = trainer, directory
        self._rows = 0
        self._cuts: dict[int, int] = {}  # by step: rows that were stepped when a cut() was taken
        self._said_inexact = False
        trainer.at_end(self._say_rest)

    @property
    def now(self) -> int:
        """Rows that were stepped until now."""
        return self._trainer.rows_stepped()

    def saved(self, rows: int) -> None:
        """A checkpoint is complete that holds the first so many rows of this process."""
        self._rows = max(self._rows, rows)

    def cut(self, step: int, keep: int) -> None:
        """A cut was frozen, and somebody else writes the checkpoint."""
        self._cuts[step] = self.now
        while len(self._cuts) > keep:
            del self._cuts[min(self._cuts)]

    def bound(self, step: int) -> None:
        """That checkpoint is complete."""
        self.saved(self._cuts.get(step, 0))

    def inexact(self) -> None:
        """Warns once of a save of a shared model that nobody said whether it is to be exact:
        the job may be shared by default only."""
        if self._said_inexact:
            return
        self._said_inexact = True
        log.warning(
            "this checkpoint may hold more than the records that it lists: the job is shared (the default), so other "
            "trainers may change the model while it is copied. If each process has the whole model, start the job with "
            "--model replicated. If the model is shared, save a function, ck.save(step, get_state): the trainers wait "
            "while it is copied. exact=False says that you mean it"
        )

    def _say_rest(self) -> None:
        rows = self.now - self._rows
        if rows <= 0:
            return
        if self._trainer.model == "shared":
            then = "acked records do not come again"
        else:
            then = "after a restore they come again"
        if getattr(sys, "last_value", None) is None:  # else an exception ends the process
            then += ". To keep them, save after the loop too: ck.save(step, state)"
        verb = "s are" if rows > 1 else " is"
        log.warning("%d record%s in no checkpoint of %s: %s", rows, verb, self._directory, then)
