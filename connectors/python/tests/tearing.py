"""Whoever imports this has each save of its process looked at for tears: save() is given a
copy of the state, and the copy is overwritten right after save() has returned. A
checkpoint that does not hold what the state was at the call then differs from it, and the
comparisons that tests make anyway show it."""

from __future__ import annotations

import copy
from typing import Any

import headrace
import numpy as np

_save = headrace.Checkpointer.save


def _tearing(self: Any, step: int, state: Any, **more: Any) -> Any:
    if callable(state) or more.get("exact"):  # the model itself, which the save reads when it likes
        return _save(self, step, state, **more)
    try:
        mine = copy.deepcopy(state)
    except Exception:  # what cannot be copied is refused below
        return _save(self, step, state, **more)
    saved = _save(self, step, mine, **more)
    _overwrite(mine)
    return saved


def _overwrite(node: Any) -> None:
    if isinstance(node, np.ndarray):
        if node.flags.writeable:
            node.view(np.uint8 if node.flags.c_contiguous and node.ndim else node.dtype)[...] = 0x5A
    elif hasattr(node, "detach") and hasattr(node, "fill_"):
        node.detach().zero_()
    elif isinstance(node, dict):
        for value in node.values():
            _overwrite(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            _overwrite(value)


headrace.Checkpointer.save = _tearing  # type: ignore[method-assign]
