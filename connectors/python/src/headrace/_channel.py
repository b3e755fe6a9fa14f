"""The state of one stream that its iterating thread and the control thread share.

Which thread writes which field:

    iterating thread   received, yielded, ledgers (append), data, waiting, totals
    stepping thread    stepped, under the control's lock
    control thread     reported, opened, connection, acked, ledgers (popleft), state, trust, fault

`lock` guards what both sides must see together: the data connection, the number
of the control connection it belongs to, and what was received over it. A frame
that was read over a connection which is not the current one any more is thrown
away: the agent that comes back is told what we have before that.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from . import _messages as wire
from ._columns import Column, parse_schema
from ._errors import Fenced, HeadraceError, ProtocolError
from ._frame import Frame
from ._ranges import Ledger
from ._stepfile import StepFile
from ._unanswered import Unanswered


class Signal:
    """Wakes one waiter. It uses a bare lock, because that is acquired in C or not at all. A
    signal's exception inside the Python code of a Condition would leave it locked."""

    __slots__ = ("_token",)

    def __init__(self) -> None:
        self._token = threading.Lock()
        self._token.acquire()

    def set(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is set
            self._token.release()

    def wait(self, seconds: float) -> None:
        """Returns once for each time that it was set, or after the time. The caller looks
        before and after whether its condition holds."""
        self._token.acquire(timeout=max(0.0, seconds))


class Channel:
    """State of one stream. Knows nothing of threads but its lock."""

    def __init__(self, number: int, open_: dict[str, Any]) -> None:
        self.number = number
        self.open = open_
        self.tracked: bool = open_["track"]
        self.columns: tuple[Column, ...] = ()
        self.dataset_id = 0
        self.unit = ""
        self.virtual_ranks = 0  # of a bit_exact dataset
        self.opened = False
        #: With rounds: what the agent has said of them, as in ROUND.
        self.round: dict[str, Any] = {}
        #: Rows of all ranks, by the number of the round; in order, the newest ones.
        self.round_rows: dict[int, int] = {}

        self.received = 0  # batches
        self.yielded = 0
        self.stepped = 0
        self.acked = 0
        self.rows = 0  # yielded
        self.wait_seconds = 0.0
        self.step_seconds = 0.0
        self.ledgers: deque[Ledger] = deque()
        self.reported: deque[tuple[int, int]] = deque()  # (through, step), sent and not acked yet
        self.step_file: StepFile | None = None  # of a shared model: the steps, for the process that comes after us

        self.state = ""  # what the agent says a waiting stream waits for
        self.reason = ""
        self.waiting = False
        self.may_wait: Callable[[], bool] = lambda: True  # for others to restore
        self.paused: str | None = None
        self.trust = 0.0  # until when next() may yield, by time.monotonic(); then it asks first
        self.unanswered = Unanswered()
        self.yields_paused = False  # batches are yielded through Yields.enter() only
        self.yields_paused_seconds = 0.0  # of waiting there, since the iterating thread last looked
        self.stepper = self.iterator = 0  # the thread that stepped last, and that asks for batches
        self.ended = False
        self.closed = False
        self.fault: HeadraceError | None = None  # next() raises it
        self.fenced: Fenced | None = None  # and step() this

        self.lock = threading.RLock()  # nothing takes it twice: see Control.inside()
        #: Whether this thread holds it.
        self.locked_here: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]
        self.changed = Signal()
        self.connection = 0  # number of the control connection; 0: none is up
        self.data: socket.socket | None = None

    # What the control thread tells.

    def on_opened(self, payload: dict[str, Any]) -> None:
        columns = parse_schema(payload.get("schema"))
        with self.lock:
            self.columns = columns
            self.dataset_id = wire.field(wire.OPENED, payload, "dataset_id", int)
            self.unit = str(payload.get("unit", ""))
            self.virtual_ranks = int(payload.get("virtual_ranks", 0))
            self.opened = True
            self.changed.set()

    def said(self, step: int, batches: int, through: int, run: int) -> None:
        """Notes a run of steps, each with `batches` batches, before it is sent or goes into HELLO's
        `resume`. Under the control's lock."""
        if run == 1:
            self.reported.append((through, step))
            return
        first = through - (run - 1) * batches
        self.reported.extend(zip(range(first, through + 1, batches), range(step - run + 1, step + 1)))

    def on_acked(self, through: int) -> None:
        if through > self.stepped:
            raise ProtocolError(f"ACKED through batch {through}, of which only {self.stepped} were stepped")
        self.acked = max(self.acked, through)
        while self.reported and self.reported[0][0] <= through:
            self.reported.popleft()
        with self.lock:
            while self.ledgers and self.ledgers[0].last <= through:
                self.ledgers.popleft()
            if self.step_file is not None:
                self.step_file.durable(through)
            self.changed.set()

    def fail(self, fault: HeadraceError) -> None:
        """From now on next() raises fault, and step() too if it is Fenced."""
        with self.lock:
            if isinstance(fault, Fenced):
                self.fenced = self.fenced or fault
            self.fault = self.fault or fault
            self._interrupt()

    def connect(self, connection: int) -> None:
        """A control connection is up, and a data connection may be made."""
        with self.lock:
            self.connection = connection
            self.changed.set()

    def disconnect(self) -> None:
        with self.lock:
            self.connection = 0
            self._interrupt()

    def _interrupt(self) -> None:
        """Ends a read that the iterating thread may be blocked in."""
        if self.data is not None:
            with contextlib.suppress(OSError):
                self.data.shutdown(socket.SHUT_RDWR)
        self.changed.set()

    # What the iterating thread tells.

    def accept(self, frame: Frame, connection: int) -> bool:
        """Counts a frame; False if it came over a connection that is gone.

        It counts a frame once, although an interrupted next() comes again with the same one.
        """
        with self.lock:
            if self.connection != connection:
                return False
            if self.received and frame.end == self.received:
                return True
            if frame.first != self.received + 1:
                raise ProtocolError(f"the frame begins with batch {frame.first}, after batch {self.received}")
            if self.tracked and not (self.ledgers and self.ledgers[-1].first == frame.first):
                self.ledgers.append(Ledger(frame))
            if self.step_file is not None:
                self.step_file.frame(self.ledgers[-1])
            self.received += frame.batches
            return True

    def on_round(self, through: int, ends: bool) -> None:
        """ends: batches after `through` are never yielded. They count as not received, so
        the next agent does not hear of them."""
        if ends:
            with self.lock:
                self.received = min(self.received, through)

    def use(self, data: socket.socket | None, connection: int) -> bool:
        """Makes data the data connection; False if the agent is gone again, or the
        stream was closed."""
        with self.lock:
            if self.closed or self.connection != connection:
                return False
            self.data = data
            return True

    def drop(self) -> None:
        """Closes the data connection, if there is one."""
        with self.lock:
            data, self.data = self.data, None
        if data is not None:
            data.close()

    # Called by any thread.

    def close(self) -> None:
        """Ends a next() that waits in another thread: closing a socket does not wake
        its reader, and an agent that comes back connects no stream that is closed."""
        with self.lock:
            self.closed = True
            self._interrupt()
        self.drop()

    def forget(self, answered: bool) -> None:
        """The stream is over. answered: all its steps are durable."""
        step_file, self.step_file = self.step_file, None
        if step_file is not None:
            step_file.close(remove=answered)

    def _round_runs(self, through: int) -> list[list[int]]:
        """The rows of the newest rounds up to `through`, as in ROUND."""
        runs: list[list[int]] = []
        for _, rows in sorted(item for item in self.round_rows.copy().items() if item[0] <= through):
            if runs and runs[-1][1] == rows:
                runs[-1][0] += 1
            else:
                runs.append([1, rows])
        return runs

    # What both ask.

    def unstepped_rows(self) -> int:
        """Rows that were yielded and not stepped. Takes no lock: the garbage collector asks, too.
        Ledgers that come or go meanwhile are of other batches."""
        return sum(
            ledger.rows_of(n)
            for ledger in self.ledgers.copy()  # in C
            for n in range(max(ledger.first, self.stepped + 1), min(ledger.last, self.yielded) + 1)
        )

    def rows_stepped(self) -> int:
        """Rows that were stepped; of a stream that tracks nothing, none."""
        return self.rows - self.unstepped_rows() if self.tracked else 0

    def totals(self) -> dict[str, Any]:
        """What STATS tells."""
        return {
            "wait_seconds": round(self.wait_seconds, 6),
            "step_seconds": round(self.step_seconds, 6),
            "rows": self.rows,
        }

    def answered(self) -> bool:
        """Says whether every step was answered."""
        return not self.tracked or self.fault is not None or self.acked >= self.stepped

    def holds(self) -> bool:
        """The process has batches that it may still step, or may get more."""
        return not self.closed and not (self.ended and self.yielded == self.stepped) and self.fault is None

    def idle_step(self) -> int | None:
        """A reported step that no batch carries and that may not have arrived."""
        if not self.reported:
            return None
        before = self.reported[-2][0] if len(self.reported) > 1 else self.acked
        through, step = self.reported[-1]
        return step if through == before else None

    def resume(self) -> dict[str, Any]:
        """This stream for HELLO's `resume`: the batches that we have, and their steps."""
        with self.lock:
            if not self.tracked:
                through = acked = self.received
            else:
                through = self.reported[-1][0] if self.reported else self.acked
                acked = self.acked
            reported = iter(list(self.reported))
            until, step = next(reported, (0, None))
            batches: list[dict[str, Any]] = []
            end = through if self.closed else self.received
            for ledger in self.ledgers:
                for n in range(max(ledger.first, acked + 1), min(ledger.last, end) + 1):
                    while step is not None and n > until:
                        until, step = next(reported, (0, None))
                    batches.append({"number": n, "step": step, "rows": ledger.rows_of(n), "spans": ledger.leases_of(n)})
            entry = {
                "stream": self.number,
                "open": self.open,
                "through": through,
                "acked": acked,
                "batches": batches,
            }
            if self.round:
                entry["round"] = {**self.round, "rows": self._round_runs(self.round["through"])}
            return entry
