"""The errors of this package."""

from __future__ import annotations

from typing import Any


class HeadraceError(Exception):
    """Base of all errors of this package that are not a caller's TypeError or ValueError."""


class AgentUnavailable(HeadraceError, ConnectionError):
    """No agent answers on the socket; the message names the command that starts one."""


class ProtocolError(HeadraceError):
    """Agent and client do not speak the same protocol, or one of them has a bug."""


class DatasetError(HeadraceError):
    """The dataset is unknown, was deleted, or was stopped; the message names the range."""


class Fenced(HeadraceError):
    """This process does not belong to the group any more.

    Its rows belong to others now, and it cannot save a checkpoint. Let it end; a new process
    of the rank goes on. Or call ``shutdown()``, ``init()`` and ``Checkpointer.restore()``,
    for example in a notebook.
    """


class WorldChanged(Fenced):
    """A rank of the group has ended, has left, or was started again: there are no more rounds.

    Start the whole group again; it goes on from its newest checkpoint. If a rank only
    closed its stream early, the others may still save.
    """


class RestoreNeeded(HeadraceError):
    """The job has a past: this process must restore first, or say that it starts over.

    ``Checkpointer.restore()`` or ``Stream.load_state_dict()``; to start over,
    ``headrace.init(resume="start")`` or HEADRACE_RESUME=start.
    """


class CheckpointError(HeadraceError):
    """A checkpoint could not be saved, bound or restored; the message says which and why."""


class PushError(HeadraceError):
    """Records could not be pushed, and pushing them again as they are does not help."""


class MasterUnavailable(PushError, ConnectionError):
    """The master did not take the records in time. Committed records stay; push again."""


class UnsteppedWarning(UserWarning):
    """A loop was left with batches that were yielded and not stepped."""


_BY_CODE: dict[str, type[HeadraceError]] = {
    "protocol": ProtocolError,
    "job": HeadraceError,
    "not_found": DatasetError,
    "invalid": DatasetError,
    "refused": Fenced,
    "failed": DatasetError,
    "unavailable": AgentUnavailable,
}


def from_wire(payload: dict[str, Any]) -> HeadraceError:
    """The exception that an ERROR message stands for."""
    message, hint = str(payload.get("message", "")), str(payload.get("hint", ""))
    code = str(payload.get("code", ""))
    text = message or f"the agent answered {code or 'an error'} without a reason"
    return _BY_CODE.get(code, HeadraceError)(f"{text}: {hint}" if hint and hint not in text else text)
