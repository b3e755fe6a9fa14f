"""A copy in memory that is removed when it is on storage: of a state that a save uploads to
a bucket without memory=True, and of deltas of checkpoints in slots."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

from . import _slots, _state
from ._errors import CheckpointError
from ._memory import ROOM, Memory, Written

if TYPE_CHECKING:
    from ._cuts import Cut


class Staged:
    """A copy of a state in memory, on its way to storage."""

    def __init__(self, slots: _slots.Folder, where: str, rank: int, flat: _state.Captured) -> None:
        """slots: beside which it lies. where: it goes. Raises CheckpointError: there is no room."""
        self.base = flat.base
        place = _Staging(slots)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(place.slot(rank, 0))  # of a process that was killed
        self._memory = Memory(place, rank, 1)
        try:
            self._written: Written = self._memory.copy(flat)
        except OSError as error:
            self.drop()
            raise CheckpointError(
                f"a save to {where} needs {flat.size + ROOM} bytes in {place.path}, from where the agent takes it: "
                f"{error.strerror or error}. Make room there (Docker: --shm-size; Kubernetes: an emptyDir with medium "
                f"Memory), or name another tmpfs with {_slots.ROOT_VARIABLE}"
            ) from error
        except BaseException:
            self.drop()
            raise

    def complete(self, about: dict[str, Any], cut: Cut) -> str:
        """Says what it is. Gives the slot's path."""
        about["manifest"]["state"]["tree"] = self._written.tree
        text = json.dumps(about, separators=(",", ":"), allow_nan=False).encode()
        self._memory.complete(self._written, text, cut.id)
        return self._written.slot.path

    def drop(self) -> None:
        """Frees its memory, once its last reader has ended."""
        path = self._memory.folder.slot(self._memory.rank, 0)
        self._memory.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


class _Staging(_slots.Folder):
    """One slot of a rank beside those that are checkpoints in memory."""

    def __init__(self, of: _slots.Folder) -> None:
        self.directory, self.id, self.path = of.directory, of.id, of.path

    def slot(self, rank: int, number: int) -> str:
        return os.path.join(self.path, f"staged-rank-{rank}")
