"""A trainer's calls to the master about cuts (docs/CUTS.md)."""

from __future__ import annotations

import logging
import os
import secrets
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ._calls import Answer
from ._errors import CheckpointError, Fenced

if TYPE_CHECKING:
    from ._trainer import Trainer

NONE = "0" * 16  # the cut that is none: the start
CUT_SECONDS = 60.0  # for a cut to be complete, unless somebody says otherwise
RESTORE_SECONDS = 600.0  # until every rank of a group has told what it holds in memory
CALL_SECONDS = 60.0  # for an answer that waits for nobody
AGAIN_SECONDS = 0.25  # between two calls of a restore that cannot be decided yet, at most
TO_STORAGE = 1024  # cuts that a process remembers: many more than it has slots in memory
SLOW_SECONDS = 0.5  # without a decision: the user is told why

log = logging.getLogger("headrace")


@dataclass(frozen=True)
class Cut:
    """The records that are in the model at a step: frozen, and never to change."""

    id: str  # 16 hex digits
    step: int
    body: dict[str, Any]  # as a manifest carries it


class ExactCut:
    """What Checkpointer.exact() gives: the cut, once the block has ended."""

    def __init__(self) -> None:
        #: The cut; None until the block has ended.
        self.cut: Cut | None = None
        #: Where the checkpoint lies, as bind() names it. The block sets it.
        self.path: str | os.PathLike[str] | None = None


class ToStorage:
    """The newest cuts of this process whose checkpoints are on storage, or on their way there. Several
    Checkpointers may save one step of a replicated model, and then share its cut."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cuts: dict[str, bool] = {}  # whether it is bound

    def add(self, cut: str, bound: bool = False) -> None:
        with self._lock:
            self._cuts[cut] = bound or self._cuts.get(cut, False)
            while len(self._cuts) > TO_STORAGE:
                del self._cuts[next(iter(self._cuts))]

    def __contains__(self, cut: str) -> bool:
        return cut in self._cuts

    def bound(self, cut: str) -> bool:
        return self._cuts.get(cut, False)


class Refused(CheckpointError):
    """The master has answered, and said no."""


def new_id() -> str:
    """A cut's id. Its asker draws it, so that an ask may be repeated."""
    return f"{secrets.randbelow((1 << 64) - 1) + 1:016x}"


def check_step(trainer: Trainer, step: int | None) -> int:
    """step, or this rank's last stepped step, which it must be. Raises ValueError."""
    last = trainer.last_step
    if step is None or step == last:
        return last
    raise ValueError(
        f"step {step!r}, but the last step that this rank has reported is {last}: save right after "
        f"stream.step({step}), and before the next one"
    )


def pause(trainer: Trainer, cut: str, deadline: float) -> None:
    """Pauses the yields of all trainers of a shared model until the cut is asked for
    with exact, or dropped. Raises CheckpointError, Fenced."""
    patience = deadline - time.monotonic()
    fields = {"call": "pause", "cut": cut, "deadline_ms": max(1, int(patience * 1000))}
    try:
        # The master's own deadline comes first, and names who did not stop.
        _say(trainer, fields, deadline + CALL_SECONDS / 10, "pausing the yields of all trainers")
    except BaseException:
        forget(trainer, cut, "its save attempt ended before the yields were paused")
        raise


def ask(
    trainer: Trainer,
    step: int,
    deadline: float,
    *,
    cut: str = "",
    path: str = "",
    exact: bool = False,
    after: int = 0,
    memory: bool = False,
) -> Cut:
    """Freezes the cut at step, once all ranks have reported it. Without a path, a framework
    carries the cut. exact: pause() for this cut was answered. after: as in restore().
    memory: the checkpoint lies in this node's memory, and may be written to path later.
    deadline: time.monotonic(). Raises CheckpointError, Fenced."""
    what = f"the checkpoint of step {step}" if path else f"the records at step {step}"
    patience = deadline - time.monotonic()
    if patience <= 0:
        raise CheckpointError(f"{what}: the deadline had passed before the master was asked")
    fields = {
        "call": "ask",
        "cut": cut or new_id(),
        "step": step,
        "carried": not path,
        "path": path,
        "deadline_ms": max(1, int(patience * 1000)),
        "exact": exact,
        "after": after,
        "memory": memory,
    }
    try:
        # The master's own deadline comes first, and names who is missing.
        answer = _say(trainer, fields, deadline + CALL_SECONDS / 10, what)
    except CheckpointError:
        forget(trainer, str(fields["cut"]), "its save attempt ended before it was frozen")
        raise
    if answer.body is None:
        raise CheckpointError(f"{what}: no list of records came: agent, master and client have different versions")
    if path and not memory:
        trainer.to_storage.add(answer.cut)
    return Cut(answer.cut, step, answer.body)


def persist(trainer: Trainer, cut: str, slot: str, deadline: float) -> str:
    """Has the agent write a checkpoint from its slot to storage. Returns the reason if it did
    not; empty: it did. Raises CheckpointError at the deadline."""
    answer = wait(trainer, {"call": "persist", "cut": cut, "path": slot}, deadline, f"writing {slot} to storage")
    return "" if answer.code == "ok" else answer.reason or answer.code


def gather(trainer: Trainer, cut: str, slot: str, deadline: float) -> str:
    """Asks the agent to write the manifest of a sharded checkpoint in a bucket. The slot holds one
    of its parts. Returns the missing parts; empty: it is written. Raises CheckpointError."""
    fields = {"call": "persist", "mode": "gather", "cut": cut, "path": slot}
    answer = wait(trainer, fields, deadline, f"writing the manifest of what lies in {slot}")
    if answer.code not in ("ok", "again"):
        raise CheckpointError(answer.reason or answer.code)  # the reason names the object
    return answer.reason if answer.code == "again" else ""


def bind(trainer: Trainer, cut: str, path: str, deadline: float) -> None:
    """Tells that a valid manifest of the cut is at path. Raises CheckpointError, Fenced."""
    trainer.to_storage.add(cut)
    _say(trainer, {"call": "bind", "cut": cut, "path": path}, deadline, f"binding {path}")
    trainer.to_storage.add(cut, bound=True)


def drop(trainer: Trainer, cut: str, reason: str) -> None:
    """Forgets a cut. Raises Refused, Fenced, and CheckpointError if no answer came."""
    fields: dict[str, Any] = {"call": "drop", "cut": cut, "reason": reason}
    _say(trainer, fields, time.monotonic() + CALL_SECONDS, f"dropping cut {cut}")


def restore(
    trainer: Trainer,
    mode: str,
    body: dict[str, Any] | None,
    path: str,
    failed: list[str],
    what: str,
    after: int = 0,
    memory: bool = False,
    readable: list[str] | None = None,
) -> Answer:
    """Goes back to a cut, or to the start. The answer's code is ok, try or refused.
    While the master cannot decide yet, it says why, and this function calls again.
    after: the highest order of the checkpoints in the folder. Cuts that are frozen from now
    on are newer, also at a master that has lost its state and counts from the beginning.
    memory: the checkpoint comes from memory. readable: the cuts that this process can read
    from memory. A cut in memory is decided only when every rank has named its readable
    ones. Raises CheckpointError if no decision comes, and Fenced."""
    fields: dict[str, Any] = {"call": "restore", "mode": mode, "path": path, "failed": failed, "after": after}
    if memory:
        fields["memory"] = True
    if readable is not None:
        fields.update(tells=True, readable=readable)
    if body is not None:
        fields["body"] = body
    ttl = trainer.control.welcome["ttl_ms"] / 1000
    began, told = time.monotonic(), ""
    deadline = began + max(RESTORE_SECONDS if memory else CALL_SECONDS, 3 * ttl)
    while True:
        answer = wait(trainer, fields, deadline, what)
        waited = time.monotonic() - began
        if answer.code != "again":
            break
        if answer.reason != told and waited >= SLOW_SECONDS:
            told = answer.reason
            log.warning("%s waits: %s", what, told)
        if time.monotonic() >= deadline:
            raise CheckpointError(f"{what}: not decided within {waited:.0f} s: {answer.reason}")
        time.sleep(min(AGAIN_SECONDS, ttl / 10))
        fields["waited_ms"] = int((time.monotonic() - began) * 1000)
    if answer.code == "ok":
        trainer.restored = True
        if answer.epoch:
            trainer.control.welcome["epoch"] = answer.epoch
    return answer


def forget(trainer: Trainer, cut: str, reason: str) -> None:
    """Tells the master that nobody waits for the cut any more. Does not wait for the answer."""
    if trainer.control.fault is None:
        trainer.control.calls.forget(trainer.control.call({"call": "drop", "cut": cut, "reason": reason}))


def _say(trainer: Trainer, fields: dict[str, Any], deadline: float, what: str) -> Answer:
    answer = wait(trainer, fields, deadline, what)
    if answer.code != "ok":
        raise Refused(f"{what}: {answer.reason or answer.code}")
    return answer


def wait(trainer: Trainer, fields: dict[str, Any], deadline: float, what: str) -> Answer:
    trainer.check()
    number = trainer.control.call(fields)
    answer = trainer.control.calls.wait(number, deadline)
    if answer is None:
        raise CheckpointError(f"{what}: the master did not answer in time; see `headrace status` and the agent's log")
    if answer.code == "fenced":
        raise Fenced(f"{what}: this process is not of the group any more: {answer.reason}")
    return answer
