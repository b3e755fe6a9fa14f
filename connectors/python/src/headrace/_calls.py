"""Questions to the master about cuts: each CALL is kept until its ANSWER has come."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

from . import _messages as wire
from ._errors import HeadraceError


class Answer(NamedTuple):
    """The master's answer to a CALL."""

    code: str  # ok, refused, fenced, try, timeout, again
    reason: str
    refusal: str  # why a restore was refused, in a word; empty: for any other reason
    cut: str  # 16 hex digits; all zeros: none
    step: int
    path: str
    body: dict[str, Any] | None
    again: str  # what was acked and comes again; empty: nothing
    epoch: int


def again(units: Any, records: Any) -> str:
    """How much acked input comes again, in words: in records, if they were counted."""
    if not units:
        return ""
    rows, untold = (records.get("rows"), records.get("untold")) if isinstance(records, dict) else (None, None)
    if not isinstance(rows, int) or (not rows and untold):
        return f"{units} units (bytes, or offsets of a topic) that were acked come again"
    return f"{'at least ' if untold else ''}{rows} records that were acked come again"


class _Call:
    def __init__(self, message: bytes) -> None:
        self.message = message
        self.done = threading.Event()
        self.answer: Answer | None = None
        self.fault: HeadraceError | None = None


class Calls:
    """The calls of a process. A call is kept until it is answered, and is sent again on
    each new connection. The master gives a repeated call the same answer."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may save while the program waits for an answer
        self._last = 0
        self._open: dict[int, _Call] = {}
        self._ended: HeadraceError | None = None

    def new(self, fields: dict[str, Any]) -> tuple[int, bytes]:
        """Numbers a call. Raises ProtocolError if it is over the limit."""
        with self._lock:
            number = self._last + 1
            message = wire.encode(wire.CALL, 0, {"id": number, **fields})
            self._last = number
            call = self._open[number] = _Call(message)
            if self._ended is not None:
                call.fault = self._ended
                call.done.set()
        return number, message

    @property
    def open(self) -> bool:
        """Somebody waits for an answer."""
        return bool(self._open)

    def unanswered(self) -> list[bytes]:
        """Their messages, in order."""
        with self._lock:
            return [call.message for call in self._open.values() if not call.done.is_set()]

    def answered(self, payload: dict[str, Any]) -> Answer | None:
        """Takes an ANSWER in; None if nobody waits for it any more."""
        number = wire.field(wire.ANSWER, payload, "id", int)
        body = payload.get("body")
        answer = Answer(
            code=wire.field(wire.ANSWER, payload, "code", str),
            reason=str(payload.get("reason", "")),
            refusal=str(payload.get("refusal", "")),
            cut=str(payload.get("cut", "")),
            step=int(payload.get("step", 0)),
            path=str(payload.get("path", "")),
            body=body if isinstance(body, dict) else None,
            again=again(payload.get("again"), payload.get("again_records")),
            epoch=int(payload.get("epoch", 0)),
        )
        with self._lock:
            call = self._open.get(number)
        if call is None:
            return answer if answer.code == "fenced" else None
        call.answer = answer
        call.done.set()
        return answer

    def fail(self, fault: HeadraceError) -> None:
        """No answer will come to any of them, nor to a later one."""
        with self._lock:
            self._ended = self._ended or fault
            calls = list(self._open.values())
        for call in calls:
            if not call.done.is_set():
                call.fault = fault
                call.done.set()

    def forget(self, number: int) -> None:
        """Nobody waits for the answer; the call still arrives, if the agent is there."""
        with self._lock:
            self._open.pop(number, None)

    def wait(self, number: int, deadline: float) -> Answer | None:
        """The answer, or None at the deadline (time.monotonic()); the call is
        forgotten then. Raises what has ended this process's part in the job."""
        with self._lock:
            call = self._open[number]
        try:
            call.done.wait(max(0.0, deadline - time.monotonic()))
        finally:
            with self._lock:
                del self._open[number]
        if call.fault is not None:
            raise call.fault
        return call.answer
