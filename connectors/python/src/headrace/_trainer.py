"""The trainer: this process, as the job knows it. init() makes it, once."""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import multiprocessing
import operator
import os
import secrets
import sys
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from . import _cuts
from . import _messages as wire
from ._channel import Channel
from ._control import Control, interrupted
from ._errors import AgentUnavailable, CheckpointError, Fenced, HeadraceError, UnsteppedWarning
from ._settings import Settings, agents_beside, resolve
from ._version import __version__

if TYPE_CHECKING:
    from ._covered import Covered

WELCOME_SECONDS = 30.0  # an agent may wait for its master before it answers
AGENT_BACK_SECONDS = 5.0  # an agent that was killed is started again within this time
_SECOND = operator.itemgetter(1)
OPEN_SECONDS = 60.0  # and for the listing of a dataset's schema

_BORN = os.getpid()  # the process that imported us; a fork has another one
_NO_WORKERS = (
    "use num_workers=0: the agent reads, decodes and prefetches in a process of its own already, "
    "and batches that are yielded in a worker could not be stepped in the trainer"
)

_CLOSED = (
    "the stream was closed, by close(), shutdown() or the end of its `with`, while this batch was unstepped: "
    "its rows go to others. Call step() before that"
)


def _made_ns() -> int:
    """When this process was made, on the clock of its node that the agent reads too. Of two
    processes of a rank, the one that was made later owns the rank."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Trainer:
    """One process of a rank, attached to its node's agent.

    All methods may be called from any thread.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        #: 16 hex digits: this process, as distinct from any other of its rank.
        self.incarnation = secrets.token_hex(8)
        self._pid = os.getpid()
        self._numbers = itertools.count(1)
        self._channels: dict[int, Channel] = {}
        hello = {
            "protocol": wire.PROTOCOL,
            "client": f"headrace-python {__version__}",
            "job": settings.job,
            "rank": settings.rank,
            "world_size": settings.world_size,
            "local_rank": settings.local_rank,
            "attempt": settings.attempt,
            "incarnation": self.incarnation,
            "pid": self._pid,
            "made_ns": _made_ns(),
            "resume_from": settings.resume,
        }
        #: This process has restored, or was told that there is nothing to restore.
        self.restored = False
        #: Why the last restore went back to nothing, if there was a reason: others train the shared model.
        self.not_restored = ""
        self._before_close: list[Callable[[], None]] = []
        self._at_end: list[Callable[[], None]] = []
        #: For each writer of checkpoints: the rows of this process that are in them.
        self.covered: list[Covered] = []
        #: The cuts whose checkpoints are on storage, or on their way there.
        self.to_storage = _cuts.ToStorage()
        #: The folders of this process's Checkpointers: whether a manifest lies at a path of one.
        self.folders: dict[str, Callable[[str], bool]] = {}
        self.removing = threading.Lock()  # held while a checkpoint is removed from one of them
        self.control = Control(settings, hello, self._channels)
        try:
            self.control.start(time.monotonic() + WELCOME_SECONDS, AGENT_BACK_SECONDS)
        except BaseException as error:
            self.control.stop(0)
            if isinstance(error, HeadraceError) or not isinstance(error, (OSError, EOFError)):
                raise
            raise AgentUnavailable(_no_agent(settings, error)) from None
        self.last_step = int(self.control.welcome.get("last_step", 0))

    @property
    def rank(self) -> int:
        return self.settings.rank

    @property
    def world_size(self) -> int:
        return self.settings.world_size

    @property
    def job(self) -> str:
        """The job's name, as the agent serves it."""
        return str(self.control.welcome.get("job", self.settings.job))

    @property
    def model(self) -> str:
        """Where the model lives: ``shared``, ``replicated`` or ``private``."""
        return str(self.control.welcome.get("model", ""))

    @property
    def generation(self) -> int:
        """Which start of the whole group this is."""
        return int(self.control.welcome.get("generation", 0))

    @property
    def epoch(self) -> int:
        return int(self.control.welcome.get("epoch", 0))

    @property
    def agent(self) -> str:
        """The agent's name."""
        return str(self.control.welcome.get("agent", ""))

    @property
    def may_default_step(self) -> bool:
        """Whether step() may leave out the step: no other rank has to count the same steps."""
        return self.world_size == 1 or self.model in ("private", "shared")

    @property
    def may_wait(self) -> bool:
        """Whether this process may wait for records. A job with a past grants nothing until its
        ranks have restored: this one has restored, or it starts over."""
        return self.restored or self.starts_over

    @property
    def starts_over(self) -> bool:
        """It, or its datasets, said that it begins with nothing."""
        return "start" in (self.settings.resume, self.control.welcome.get("resume_from"))

    def before_close(self, wait: Callable[[], None]) -> None:
        """wait is called before this process says goodbye."""
        self._before_close.append(wait)

    def at_end(self, say: Callable[[], None]) -> None:
        """say is called when this process says goodbye, unless it was fenced or its agent is gone."""
        self._at_end.append(say)

    def check(self) -> None:
        """Raises the error that ended this process's part in the job, if there is one."""
        if os.getpid() != self._pid:
            raise HeadraceError(f"this process was forked from a trainer and is none: {_NO_WORKERS}")
        if self.control.fault is not None:
            raise self.control.fault

    def check_stepped(self) -> None:
        """Raises ValueError if the calling thread has batches that it did not step."""
        self.control.do_later()
        me = threading.get_ident()
        for channel in list(self._channels.values()):
            held = channel.yielded - channel.stepped
            if held and channel.tracked and not channel.closed and me == (channel.stepper or channel.iterator):
                if channel.open["ack"] == "auto":
                    how = 'ack="auto" does that at the next batch only'
                elif channel.iterator in (0, me):
                    how = "call step() first"
                else:  # they may lie in a queue, in no model
                    how = (
                        "another thread takes batches ahead of this one. Let it take no more, train with those it has "
                        "taken and step() each, then save. Do not step() a batch that is not in the model. Or save "
                        "with exact=False"
                    )
                several = "es of" if held > 1 else " of"
                raise ValueError(
                    f"{held} batch{several} {channel.open['dataset']!r} {'are' if held > 1 else 'is'} not stepped: an "
                    f"exact save waits until all yielded batches are in the model: {how}"
                )

    def open(self, request: dict[str, Any]) -> Channel:
        """Opens a stream. Raises DatasetError and whatever check() does."""
        self.check()
        if self.control.inside():
            raise interrupted("batches()")
        self.control.do_later()  # the agent hears of the end of a stream before it hears of the next one
        channel = Channel(next(self._numbers), request)
        channel.may_wait = lambda: self.may_wait
        with self.control.lock:
            channel.yields_paused = bool(self.control.yields.cut)
            self._channels[channel.number] = channel
            channel.trust = self.control.trust.until
            self.control.outbox.post(wire.encode(wire.OPEN, channel.number, request))
        deadline = time.monotonic() + OPEN_SECONDS
        try:
            while not channel.opened and channel.fault is None and (left := deadline - time.monotonic()) > 0:
                channel.changed.wait(left)
        except BaseException:
            self.close_channel(channel)
            raise
        if channel.fault is not None or not channel.opened:
            self.close_channel(channel)
            raise channel.fault or AgentUnavailable(
                f"the agent did not open dataset {request['dataset']!r} within {OPEN_SECONDS:.0f} s; "
                "see its log, and `headrace status`"
            )
        if self.control.fault is not None:
            channel.fail(self.control.fault)  # it came between check() and the stream's entry
        return channel

    def close_channel(self, channel: Channel) -> None:
        """Steps that were said are still sent; the rest is given up."""
        if os.getpid() != self._pid:
            return  # forked: the parent's locks may be held for ever here
        if self.control.inside():  # a signal handler, or the end of a generator that is garbage
            self.leave_channel(channel)
            return
        with self.control.lock:
            if not channel.closed:
                channel.close()
                last = wire.encode(wire.STATS, channel.number, channel.totals())
                self.control.outbox.post(last + wire.encode(wire.CLOSE, channel.number, {}))

    def leave_channel(self, channel: Channel) -> None:
        """Leaves it to the control thread to close a stream. Takes no lock."""
        if os.getpid() == self._pid:
            self.control.later(functools.partial(self.close_channel, channel))

    def pause(self, channel: Channel, why: str | None) -> None:
        if os.getpid() != self._pid:
            return
        if self.control.inside():
            self.control.later(functools.partial(self.pause, channel, why))
            return
        with self.control.lock:
            channel.paused = why
            payload = {"paused": why is not None, "why": why or ""}
            self.control.outbox.post(wire.encode(wire.PAUSE, channel.number, payload))

    def report(self, channel: Channel, step: int | None, batches: int) -> int:
        """The oldest unstepped batches are in the model as of step. Never blocks."""
        control = self.control
        if control.locked_here() or channel.locked_here():
            raise interrupted("step()")
        me = threading.get_ident()
        with control.lock:
            if channel.closed and batches:
                raise HeadraceError(_CLOSED)
            if batches > channel.yielded - channel.stepped:
                raise ValueError(f"batches={batches}, but only {channel.yielded - channel.stepped} are unstepped")
            last = self.last_step
            if step is None:
                step = last + 1
            elif step <= last:
                raise ValueError(f"step {step} after step {last}: the steps of a rank grow")
            outbox, run = control.outbox.items, 0
            if outbox and batches and step == last + 1:
                item = outbox[-1]
                if item[0] is channel and item[1] == last and item[2] == batches:
                    run = item[5]  # the one before waits still: they leave together
            through = channel.stepped + batches
            if channel.step_file is not None and batches:  # first: after a signal's exception the step is said again
                channel.step_file.stepped(through, step)
            # All or nothing: CPython runs signal handlers after a call, and the append is the first one here.
            channel.stepper, channel.stepped, self.last_step = me, through, step
            if run:
                outbox[-1] = (channel, step, batches, through, False, run + 1)
            else:
                outbox.append((channel, step, batches, through, False, 1))
            if control.outbox.step_sent():
                return step
        if control.sleeping:
            control.sleeping = False
            control.bell.ring()
        return step

    def report_all(self, channels: Sequence[Channel], step: int | None) -> int:
        """All unstepped batches of several streams are in the model as of one step.
        Never blocks."""
        control = self.control
        if control.inside():
            raise interrupted("step()")
        me = threading.get_ident()
        with control.lock:
            if step is None:
                step = self.last_step + 1
            elif step <= self.last_step:
                raise ValueError(f"step {step} after step {self.last_step}: the steps of a rank grow")
            held = [channel for channel in channels if channel.yielded > channel.stepped] or list(channels[-1:])
            if any(channel.closed and channel.yielded > channel.stepped for channel in held):
                raise HeadraceError(_CLOSED)
            last = held[-1]
            items = [(c, step, c.yielded - c.stepped, c.yielded, c is not last, 1) for c in held]
            for channel in held:
                if channel.step_file is not None and channel.yielded > channel.stepped:
                    channel.step_file.stepped(channel.yielded, step)
            for channel in held:
                channel.stepper = me
            marks = map(setattr, held, itertools.repeat("stepped"), [c.yielded for c in held])
            marked = map(_SECOND, zip(marks, items))
            extend = control.outbox.items.extend
            # All or nothing: CPython runs signal handlers after a call, and this one marks and appends in C.
            self.last_step = step
            extend(marked)
            if control.outbox.step_sent():
                return step
        if control.sleeping:
            control.sleeping = False
            control.bell.ring()
        return step

    def __repr__(self) -> str:
        return f"Trainer(job {self.job!r}, model {self.model}, rank {self.rank} of {self.world_size})"

    def close(self) -> None:
        """Says goodbye: what was stepped is durable first, if an agent is there."""
        self.control.do_later()
        for wait in self._before_close:
            wait()
        if self.control.fault is None:
            for say in self._at_end:
                say()
        left = [channel for channel in list(self._channels.values()) if not channel.closed]
        for channel in left:
            self.close_channel(channel)
        self.control.stop(patience=self.control.welcome.get("ttl_ms", 0) / 1e3)
        if getattr(sys, "last_value", None) is None:  # else an exception ends the process
            for channel in left:
                warn_unstepped(channel)

    def rows_stepped(self) -> int:
        """Rows that this process has said are in the model, over all its streams."""
        with self.control.lock:
            channels = list(self._channels.values())
            return self.control.rows_done + sum(channel.rows_stepped() for channel in channels)

    def abandon(self) -> None:
        """In a forked child: lets go of the parent's connections."""
        self.control.abandon()
        for channel in self._channels.values():
            channel.closed = True
            channel.step_file = None  # the parent's: its lock goes with the parent, not with us
            if channel.data is not None:
                channel.data.close()
            channel.fault = channel.fenced = Fenced(
                f"this stream belongs to the process that was forked: {_NO_WORKERS}"
            )


_lock = threading.RLock()
_current: Trainer | None = None


def init(
    job: str | None = None,
    *,
    master: str | None = None,
    agent: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    attempt: int | None = None,
    resume: Literal["bound", "acked", "start"] | None = None,
    alone: bool = False,
) -> Trainer:
    """Attaches this process to its node's agent.

    Each value is the argument, else HEADRACE_JOB, HEADRACE_MASTER, HEADRACE_AGENT
    (a socket's path), HEADRACE_RANK, HEADRACE_WORLD_SIZE, HEADRACE_ATTEMPT, else
    torchrun's RANK, WORLD_SIZE and TORCHELASTIC_RESTART_COUNT, else 0 of 1. The job may also be
    that of ./headrace.yaml (`job: NAME`), if neither it nor the agent is named elsewhere.
    resume, else HEADRACE_RESUME, else `resume` of the job's datasets, says what to do if the job has a past. ``bound``
    (the default for a replicated or private model): this process restores before its first batch. ``acked`` (only for a
    shared model, and its default): go on after the acked records. ``start``: read everything again, in a new model.

    alone: this program trains its model in one process. If the job has several ranks, it ends
    here, with SystemExit and the reason. Otherwise each rank would train a model of its own, and
    the checkpoint of one of them would list the records of all. The ranks of a private model may
    be several: each has its own model and its own checkpoints.

    The first stream calls init() if you do not. A second call returns the same trainer. It waits
    30 s at most for an agent whose master does not answer, and 5 s for one that was killed.

    Raises AgentUnavailable, ValueError, and HeadraceError in a forked process.
    """
    global _current
    settings = resolve(
        job, master=master, agent=agent, rank=rank, world_size=world_size, attempt=attempt, resume=resume
    )
    if _locked_here():
        raise interrupted("init()")
    explicit = any(v is not None for v in (job, master, agent, rank, world_size, attempt, resume))
    with _lock:
        _check_process(explicit)
        if _current is not None and not _forgotten(_current):
            if explicit and settings != _current.settings:
                raise HeadraceError(
                    f"this process is rank {_current.rank} of job {_current.job!r} already: "
                    "call headrace.shutdown() before another init()"
                )
        else:
            if _current is not None:
                _current.close()
            _current = Trainer(settings)
        trainer = _current
    if alone and trainer.world_size > 1 and trainer.model != "private":
        raise SystemExit(_not_alone(trainer))
    return trainer


def _locked_here() -> bool:
    """This thread is in init(), or in shutdown()."""
    held: bool = _lock._is_owned()  # type: ignore[attr-defined]
    return held


def _not_alone(trainer: Trainer) -> str:
    pages = "https://github.com/headrace/headrace/blob/main/docs"
    return (
        f"rank {trainer.rank} of {trainer.world_size}: this program trains one model in one process. Start one, with "
        f"--nproc-per-node 1. One model on several ranks needs DDP ({pages}/torch.md) or, with TensorFlow, parameter "
        f"servers ({pages}/tensorflow.md#parameter-servers)"
    )


def shutdown() -> None:
    """Closes all streams and says goodbye to the agent; init() may be called again.

    It first waits until all steps are durable, at most for the session's TTL. It runs by
    itself when the interpreter exits.

    Raises HeadraceError in a signal handler that has interrupted another call of Headrace:
    raise SystemExit there instead.
    """
    global _current
    if _locked_here() or (_current is not None and _current.control.inside()):
        raise interrupted("shutdown()")
    with _lock:
        trainer, _current = _current, None
    if trainer is not None and trainer._pid == os.getpid():
        trainer.close()


def warn_unstepped(channel: Channel, depth: int = 4) -> None:
    """Warns how many rows were yielded and not stepped, if there are some. depth: the warning
    names the caller's caller, and so on."""
    rows = channel.unstepped_rows()
    if rows:
        batches = channel.yielded - channel.stepped
        warnings.warn(
            f"{rows} rows in {batches} batch{'es' * (batches > 1)} of {channel.open['dataset']!r} were yielded and not "
            "stepped: they will be delivered again. Call stream.step() after a batch is in the model",
            UnsteppedWarning,
            stacklevel=depth,
        )


def _forgotten(trainer: Trainer) -> bool:
    """The agent went away while nothing was held: another one may be met."""
    return isinstance(trainer.control.fault, AgentUnavailable)


def _check_process(explicit: bool) -> None:
    torch_data = sys.modules.get("torch.utils.data")
    worker_info = getattr(torch_data, "get_worker_info", None)
    if worker_info is not None and worker_info() is not None:
        raise HeadraceError(f"a stream cannot be opened in a DataLoader's worker: {_NO_WORKERS}")
    if _current is not None and _current._pid != os.getpid():
        raise HeadraceError(f"a stream cannot be opened in a process that was forked from a trainer: {_NO_WORKERS}")
    if _current is None and not explicit and (os.getpid() != _BORN or multiprocessing.parent_process() is not None):
        raise HeadraceError(
            f"a stream cannot be opened in a forked or multiprocessing worker: {_NO_WORKERS}. "
            "If this process is a trainer of its own, call headrace.init(rank=..., world_size=...) in it first"
        )


def _no_agent(settings: Settings, error: Exception) -> str:
    reason = getattr(error, "strerror", None) or str(error)
    there = f"headrace agent --master {settings.master}" if settings.master else "headrace up"
    program = os.path.basename(sys.argv[0]) if sys.argv and sys.argv[0] not in ("", "-c") else "train.py"
    others = agents_beside(settings.agent)
    if settings.job and not settings.master:
        there += f" --job {settings.job}"
    advice = f"start one with `{there}`, or run this program as `headrace run -- python {program}`"
    if others:
        advice += (
            f". Agents of other jobs have sockets here: {', '.join(others)}; if you mean one of them, "
            f"set HEADRACE_JOB={others[0]}"
        )
    return f"no agent answers on {settings.agent} ({reason}): {advice}"


def _forked() -> None:
    """In the child: only memory is touched, and no lock that a lost thread may hold."""
    global _lock
    _lock = threading.RLock()
    if _current is not None:
        with contextlib.suppress(OSError):
            _current.abandon()


def _note_end() -> None:
    """If `headrace run` started this trainer: sees to it that an error of a checkpoint that
    ends it is noted. A new start would only meet the same error."""
    note, before = os.environ.get("HEADRACE_ENDED_BY"), sys.excepthook
    if not note:
        return

    def hook(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        if isinstance(error, CheckpointError) and os.getpid() == _BORN:
            with contextlib.suppress(OSError), open(note, "w") as file:
                file.write(f"CheckpointError: {error}")
        before(kind, error, trace)

    sys.excepthook = hook


_note_end()
os.register_at_fork(after_in_child=_forked)
atexit.register(shutdown)
