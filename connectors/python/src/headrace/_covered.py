"""Which of this process's rows are in a checkpoint; at the end it logs how many are not."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ._trainer import Trainer

log = logging.getLogger("headrace")


_SAVE = "save after the loop too: ck.save(step, state)"
_CARRY = "save after the loop too, with the state_dict() of the last step"


class Covered:
    """Rows of this process that the checkpoints of a folder hold; without a folder: those of a
    framework, which carry the records of state_dict()."""

    def __init__(self, trainer: Trainer, directory: str = "", how: str = _SAVE) -> None:
        self._trainer, self._directory = trainer, directory
        #: How to save the last rows, in the words of the framework that writes the checkpoints.
        self.how = how
        self._rows = 0
        self._cuts: dict[int, int] = {}  # by step: rows that were stepped when a cut() was taken
        self._said_inexact = False
        trainer.covered.append(self)
        trainer.at_end(self._say_rest)

    @property
    def now(self) -> int:
        """Rows that were stepped until now."""
        return self._trainer.rows_stepped()

    def saved(self, rows: int) -> None:
        """Notes that a checkpoint with the first `rows` rows of this process is complete."""
        self._rows = max(self._rows, rows)

    def cut(self, step: int, keep: int) -> None:
        """Notes that a cut was frozen. A framework writes the checkpoint."""
        self._cuts[step] = self.now
        while len(self._cuts) > keep:
            del self._cuts[min(self._cuts)]

    def bound(self, step: int) -> None:
        """Notes that the checkpoint of that cut() is complete."""
        self.saved(self._cuts.get(step, 0))

    def inexact(self) -> None:
        """Warns once if a shared model is saved and the program did not choose exact: the job
        may be shared only because that is the default."""
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
        covered = self._rows
        if not self._directory:  # a program that also saves with a Checkpointer has those rows
            covered = max(other._rows for other in self._trainer.covered)
        rows = self.now - covered
        if rows <= 0:
            return
        if self._trainer.model == "shared":
            then = "acked records do not come again"
        else:
            then = "after a restore they come again"
        if getattr(sys, "last_value", None) is None:  # else an exception ends the process
            then += f". To keep them, {self.how}"
        verb = "s are" if rows > 1 else " is"
        of = f" of {self._directory}" if self._directory else ""
        log.warning("%d record%s in no checkpoint%s: %s", rows, verb, of, then)


def carried(trainer: Trainer, how: str = "") -> Covered:
    """For checkpoints that a framework writes with the records in them. how: how to save
    the last rows; the first call that says it counts."""
    found = next((c for c in trainer.covered if not c._directory), None)
    if found is None:
        found = Covered(trainer, how=how or _CARRY)
    elif how and found.how == _CARRY:
        found.how = how
    return found
