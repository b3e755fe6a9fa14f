"""The background thread that owns the control connection.

It sends the messages of the outbox, handles the agent's messages, keeps the watchdog, and
finds an agent that was started again on its socket. It never reads a data connection; it
only wakes up the reader.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from . import _messages as wire
from ._advice import Advice
from ._calls import Calls
from ._calls import again as comes_again
from ._channel import Channel
from ._errors import AgentUnavailable, DatasetError, Fenced, HeadraceError, ProtocolError, from_wire
from ._hello import await_welcome, goodbye, ttl_of
from ._messages import Message
from ._outbox import LINGER, LINGER_SHARED, Outbox
from ._pause import Yields
from ._settings import Settings
from ._stepfile import StepFile
from ._stepfile import open_ as open_step_file
from ._trust import Trust
from ._watchdog import Watchdog, end_process
from ._wire import Bell, ControlConnection

log = logging.getLogger("headrace")

SEEK = 0.05  # seconds between two tries to find the agent again
STATS = 1.0  # seconds between two STATS of a stream


def interrupted(what: str) -> HeadraceError:
    """The error of a call that a signal handler makes in the middle of another one."""
    return HeadraceError(
        f"{what} was called while another call of Headrace was under way in the same thread, as a signal handler does: "
        "nothing was done. Let the handler only set a flag, and look at the flag in the training loop"
    )


class Control:
    """The control connection of one trainer process."""

    def __init__(self, settings: Settings, hello: dict[str, Any], channels: dict[int, Channel]) -> None:
        self.settings = settings
        # Of the outbox and of what is written to the connection: two threads do, and
        # resume() sees what is said either in the outbox or in the streams' state.
        # An RLock knows its owner, and nothing takes it twice: see inside().
        self.lock = threading.RLock()
        #: Whether this thread holds it.
        self.locked_here: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]
        self._later: deque[Callable[[], None]] = deque()
        self._doing = threading.RLock()  # held by the thread that does what is in _later
        self.calls = Calls()
        self.sleeping = False
        self.welcome: dict[str, Any] = {}
        self.fault: HeadraceError | None = None
        self.epoch = 1  # number of the control connection
        self.bell = Bell()
        self.yields = Yields(self.lock, lambda: list(channels.values()), self.bell.ring)
        self.outbox = Outbox(self.lock, self.bell, self.yields)
        self.trust = Trust(channels, self.bell)
        self.rows_done = 0  # stepped in streams that are gone from _channels
        self._advice = Advice(channels)
        self._hello = hello
        self._channels = channels
        self._thread: threading.Thread | None = None
        self._told_to_end = False
        self._next_stats = 0.0
        self._stopping = False
        self._early: list[Message] = []  # came with WELCOME
        self._stop_by = 0.0

    # Called by other threads.

    def inside(self) -> bool:
        """Whether this thread holds one of our locks. Then a signal handler of the program, or the
        garbage collector, has interrupted a call of ours in this thread. The state is half
        changed, and a lock that is asked for now may never come."""
        return self.locked_here() or any(c.locked_here() for c in list(self._channels.values()))

    def later(self, do: Callable[[], None]) -> None:
        """Leaves something to the control thread, which may do it twice. Takes no lock."""
        self._later.append(do)
        self.bell.ring()

    def do_later(self) -> None:
        """Does what was left, in order; if another thread is doing it, waits for that."""
        if not self._later or self.inside() or self._doing._is_owned():  # type: ignore[attr-defined]
            return
        with self._doing:
            while self._later:
                self._later[0]()
                self._later.popleft()

    def start(self, deadline: float, patience: float) -> None:
        """Says HELLO and starts the thread. If the agent's socket exists and nobody answers on
        it, the agent may just be starting again: it has `patience` seconds to come back.
        Raises OSError, EOFError, HeadraceError."""
        self._meet_first(deadline, time.monotonic() + patience)
        self._thread = threading.Thread(target=self._run, name="headrace-control", daemon=True)
        self._thread.start()

    def call(self, fields: dict[str, Any]) -> int:
        """Posts a CALL, after the steps that were said before. Returns its id."""
        if self.inside():
            raise interrupted("a save, a restore or state_dict()")
        with self.lock:
            number, message = self.calls.new(fields)
            self.outbox.post(message)
        return number

    def stop(self, patience: float) -> None:
        """Sends the remaining messages, waits for the answers to steps, says BYE."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._stop_by = time.monotonic() + patience
            self._stopping = True
            self.bell.ring()
            self._thread.join(patience + 1)
        self.bell.close()

    def abandon(self) -> None:
        """In a forked child: closes its copies of what is the parent's."""
        self.outbox.disconnect()
        self.bell.close()

    # The thread.

    def _run(self) -> None:
        try:
            while not self._turn():
                pass
        except BaseException as error:
            self._fail(HeadraceError(f"the control thread of this process has ended: {error!r}"))
            raise
        finally:
            self.calls.fail(HeadraceError("this process has said goodbye: headrace.shutdown() was called"))
            with self.lock:
                self.outbox.disconnect()
                for channel in list(self._channels.values()):
                    with channel.lock:
                        channel.forget(channel.acked >= channel.stepped)

    def _turn(self) -> bool:
        """One round; True when the thread is done."""
        self.do_later()
        now, connection, watchdog = time.monotonic(), self.outbox.connection, self.trust.watchdog
        if connection is None:
            if watchdog.expired(now, connected=False):
                self._expire()
                return True
            return self._seek(now)
        try:
            self._hear(connection)
            if watchdog.expired(now, connected=True):
                self._expire()
                return True
            try:
                self._send(connection, now)
            except OSError:
                self._hear(connection)  # why it was closed, if the agent said so
                raise
            self.trust.tell_all(now)
            self._advice.look(now)
        except (OSError, EOFError) as error:
            self._disconnected(error)
            return False
        except ProtocolError as error:
            self._fail(error)
            return True
        if self._stopping and (self._settled() or now > self._stop_by):
            goodbye(connection)
            return True
        self._sleep(connection)
        return False

    def _send(self, connection: ControlConnection, now: float) -> None:
        with self.lock:
            self._send_all(connection, now)

    def _send_all(self, connection: ControlConnection, now: float) -> None:
        self.outbox.send(connection, now)
        if now >= self.trust.watchdog.due:
            t = int(now * 1e9)
            self.trust.watchdog.sent(t / 1e9)
            connection.send(wire.encode(wire.PING, 0, {"t": t}))
        if now >= self._next_stats:
            self._next_stats = now + STATS
            for channel in list(self._channels.values()):
                if channel.closed and channel.answered():
                    self.rows_done += channel.rows_stepped()
                    del self._channels[channel.number]
                    with channel.lock:
                        channel.forget(channel.acked >= channel.stepped)
                elif channel.opened and not channel.closed:
                    connection.send(wire.encode(wire.STATS, channel.number, channel.totals()))
        connection.flush()

    def _sleep(self, connection: ControlConnection) -> None:
        now = time.monotonic()
        watchdog = self.trust.watchdog
        linger = min(self.outbox.linger_until - now, watchdog.patience(now))
        if linger > 0 and not self._stopping:
            # Steps that come now wait for the next turn, and so do their answers: but
            # not those that somebody waits for.
            self.bell.wait(connection.sock if self.calls.open else None, False, linger)
            return
        self.sleeping = True
        if self.outbox.items:
            self.sleeping = False
            return
        patience = min(watchdog.patience(now), self._next_stats - now)
        if self._stopping:
            patience = min(patience, self._stop_by - now)
        self.bell.wait(connection.sock, connection.pending, patience)
        self.sleeping = False

    def _hear(self, connection: ControlConnection) -> None:
        early, self._early = self._early, []
        for message in early + connection.receive():
            self._on(message, connection)

    def _on(self, message: Message, connection: ControlConnection) -> None:
        type_, number, payload = message
        if type_ == wire.PONG:
            sent = wire.field(type_, payload, "t", int) / 1e9
            session = payload.get("session_ms", self.trust.watchdog.ttl * 1e3)
            self.trust.watchdog.answered(sent, session / 1e3)
            self.trust.extend()
        elif type_ == wire.PING:
            with self.lock:
                connection.send(wire.encode(wire.PONG, 0, {"t": payload.get("t", 0)}))
                connection.flush()
        elif type_ == wire.ANSWER:
            self._answered_call(payload)
        elif type_ == wire.PAUSE_YIELDS:
            self.yields.told(payload)
        elif type_ == wire.FENCED:
            self._fail(Fenced(f"this process is not of the group any more: {payload.get('reason', '')}"))
        elif type_ == wire.QUIT:
            self._quit(str(payload.get("reason", "")))
        elif type_ == wire.ERROR and number == 0:
            self._fail(from_wire(payload))
        elif (channel := self._channels.get(number)) is not None:
            self._on_stream(type_, channel, payload)
        elif type_ not in (
            wire.ACKED,
            wire.STATE,
            wire.ERROR,
            wire.OPENED,
        ):  # of a stream that we have closed
            raise ProtocolError(f"the agent sent {wire.name(type_)} of stream {number}, which was never opened")

    def _on_stream(self, type_: int, channel: Channel, payload: dict[str, Any]) -> None:
        if type_ == wire.ACKED:
            if channel.tracked:
                channel.on_acked(wire.field(type_, payload, "through", int))
                self.trust.tell(channel, time.monotonic())
        elif type_ == wire.OPENED:
            if channel.step_file is None:
                channel.step_file = self._step_file_of(channel, payload)
            channel.on_opened(payload)
            channel.connect(self.epoch)
        elif type_ == wire.ERROR:
            channel.fail(from_wire(payload))
        elif type_ == wire.STATE:
            channel.state, channel.reason = str(payload.get("state", "")), str(payload.get("reason", ""))
            if channel.state in ("failed", "deleted"):
                why = channel.reason or "no reason given"
                channel.fail(DatasetError(f"dataset {channel.open['dataset']!r} {channel.state}: {why}"))
            else:
                log.info("%s: %s %s", channel.open["dataset"], channel.state, channel.reason)
        else:
            raise ProtocolError(f"the agent sent {wire.name(type_)} on the control connection")

    def _step_file_of(self, channel: Channel, opened: dict[str, Any]) -> StepFile | None:
        folder = self.welcome.get("step_files")
        if not folder or not channel.tracked or channel.closed or self.welcome.get("model") != "shared":
            return None
        hello = {k: self._hello[k] for k in ("rank", "world_size", "attempt", "incarnation", "pid", "made_ns")}
        about = dict(hello, job=self.welcome.get("job", ""), agent=self.welcome.get("agent", ""))
        about.update(generation=self.welcome.get("generation", 0), stream=channel.number)
        about.update(dataset=opened.get("dataset_id", 0), virtual=channel.open.get("virtual"))
        file = open_step_file(str(folder), about)
        # What is written down outlives us: it may gather for as long as in the other kinds.
        self.outbox.linger = LINGER if file is not None else LINGER_SHARED
        return file

    def _answered_call(self, payload: dict[str, Any]) -> None:
        answer = self.calls.answered(payload)
        if answer is not None and answer.code == "fenced":
            self._fail(Fenced(f"this process is not of the group any more: {answer.reason}"))

    def _quit(self, reason: str) -> None:
        self._told_to_end = True
        self._fail(Fenced(f"the agent ends this process: {reason}"))
        os.write(2, f"headrace: the agent ends process {os.getpid()}: {reason}\n".encode())
        os.kill(os.getpid(), signal.SIGTERM)

    # Losing the agent and finding it again.

    def _disconnected(self, error: Exception) -> None:
        with self.lock:
            self.outbox.disconnect()
        for channel in list(self._channels.values()):
            channel.disconnect()
        log.warning("the agent at %s is gone (%s); waiting for it to come back", self.settings.agent, error)

    def _seek(self, now: float) -> bool:
        if self._given_up(now) or (self._stopping and self._settled()):
            return True
        try:
            self._meet(self.trust.watchdog.deadline)
        except (OSError, EOFError):
            self.bell.wait(None, False, SEEK)
        except HeadraceError as error:
            if not isinstance(error, ConnectionError):  # AgentUnavailable: its master is not there yet
                self._fail(error)
                return True
            self.bell.wait(None, False, SEEK)
        return False

    def _given_up(self, now: float) -> bool:
        return self._stopping and now > self._stop_by

    def _meet_first(self, deadline: float, back_by: float) -> None:
        gone = False
        while True:
            try:
                return self._meet(deadline)
            except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError, FileNotFoundError, EOFError) as e:
                # While it starts, an agent removes the old socket before it makes its own.
                if time.monotonic() >= back_by or (isinstance(e, FileNotFoundError) and not gone):
                    raise
                if not gone:
                    log.warning("the agent at %s went away (%s); waiting for it", self.settings.agent, e)
                gone = True
                self.bell.wait(None, False, SEEK)

    def _meet(self, deadline: float) -> None:
        """Connects, sends HELLO, and continues every stream where it was."""
        connection = ControlConnection(self.settings.agent)
        try:
            channels, resume, calls = self._take_up()
            hello = dict(self._hello, generation=self.welcome.get("generation", 0))
            if resume:
                hello["resume"] = resume
            sent = time.monotonic()
            connection.send(wire.encode(wire.HELLO, 0, hello))
            welcome, self._early = await_welcome(connection, self.bell, deadline, self._given_up)
            self._welcomed(welcome, sent, again=bool(self.welcome))
        except BaseException:
            connection.close()
            raise
        with self.lock:
            self.outbox.connection = connection
            self.yields.connection_begins()
            self._say_again(connection, channels, calls)

    def _say_again(self, connection: ControlConnection, channels: list[Channel], calls: list[bytes]) -> None:
        for channel in channels:
            if not channel.opened:
                connection.send(wire.encode(wire.OPEN, channel.number, channel.open))
            if channel.paused is not None:
                connection.send(wire.encode(wire.PAUSE, channel.number, {"paused": True, "why": channel.paused}))
            elif (idle := channel.idle_step()) is not None:
                connection.send(wire.encode_step(channel.number, idle, 0, channel.reported[-1][0]))
            if channel.closed:
                connection.send(wire.encode(wire.CLOSE, channel.number, {}))
            elif channel.opened:
                channel.connect(self.epoch)
        for call in calls:
            connection.send(call)

    def _take_up(self) -> tuple[list[Channel], list[dict[str, Any]], list[bytes]]:
        """Returns all streams, their entries for `resume`, and the calls without an answer. It
        empties the outbox: its calls are among those calls, and its steps are in the entries."""
        with self.lock:
            self.epoch += 1
            self.outbox.take_back()
            channels = list(self._channels.values())
            return channels, [c.resume() for c in channels if c.opened], self.calls.unanswered()

    def _welcomed(self, welcome: dict[str, Any], sent: float, again: bool) -> None:
        ttl = ttl_of(welcome)
        self.welcome = welcome
        self.outbox.linger = LINGER_SHARED if welcome.get("model") == "shared" else LINGER
        self.outbox.step_runs = bool(welcome.get("step_runs"))
        self.trust.watchdog = Watchdog(ttl, sent, shared=welcome.get("model") == "shared")
        if again:
            log.warning("the agent at %s is back", self.settings.agent)
        elif come := comes_again(welcome.get("pending_again"), welcome.get("again")):
            log.warning("%s: %s", welcome.get("job"), come)
        for answer in welcome.get("resumed") or ():
            channel = self._channels.get(answer.get("stream"))
            if channel is not None and answer.get("refused"):
                channel.fail(Fenced(f"the rows of this process belong to others now: {answer.get('reason', '')}"))
        self.trust.extend()  # last: no batch that was refused is yielded

    def _settled(self) -> bool:
        if not self.outbox.settled():
            return False
        if self.fault is not None:
            return True
        return all(channel.answered() for channel in list(self._channels.values()))

    def _fail(self, fault: HeadraceError) -> None:
        with self.lock:
            if self.fault is None:
                self.fault = fault
            self.calls.fail(fault)
        for channel in list(self._channels.values()):
            channel.fail(fault)

    def _expire(self) -> None:
        silent = time.monotonic() - self.trust.watchdog.heard
        why = f"the agent at {self.settings.agent} was not heard for {silent:.1f} s"
        holding = self._told_to_end or any(channel.holds() for channel in list(self._channels.values()))
        if holding and self.welcome.get("model") == "shared":
            end_process(f"{why}, and its rows go to others, which share its model")
        if self.welcome.get("model") == "shared":
            self._fail(AgentUnavailable(f"{why}: start it again"))
            return
        self._fail(
            Fenced(f"{why}, and the rows of this process go to others: start the agent and then this process again")
        )
