"""The background thread that owns the control connection.

It sends what other threads leave in the outbox, handles the agent's messages, keeps the
watchdog, and finds an agent that was started again on its socket. Of a data connection it
only wakes up the reader.

step() sends the step in the caller's own thread. So a step has left the process when step()
returns, even if the process is killed the next moment. The exception are steps that follow
each other within THICK. They are left to this thread, which sends them together every LINGER
seconds, because a system call for each step would slow such a loop down by several percent.

A process that is killed loses the steps that it had not sent. In a `shared` model the step
file has them; without one, those batches come again. In the other kinds the next process goes
back to a checkpoint, whose steps were sent. There LINGER is longer, because each send wakes up
agent and master and ends in an fsync.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from typing import Any, Union

from . import _messages as wire
from ._calls import Calls
from ._calls import again as comes_again
from ._channel import Channel
from ._errors import AgentUnavailable, DatasetError, Fenced, HeadraceError, ProtocolError, from_wire
from ._hello import await_welcome, goodbye, ttl_of
from ._messages import Message
from ._pause import Yields
from ._settings import Settings
from ._stepfile import StepFile
from ._stepfile import open_ as open_step_file
from ._watchdog import Watchdog, end_process
from ._wire import Bell, ControlConnection

log = logging.getLogger("headrace")

THICK = 0.002  # seconds between two steps
LINGER_SHARED = 0.01  # seconds between two sends of steps that come thick
LINGER = 0.05  # where the model is not shared, or a step file has them
SEEK = 0.05  # seconds between two tries to find the agent again
STATS = 1.0  # seconds between two STATS of a stream
STUCK = 3.0  # seconds of waiting for the end with unstepped batches, before a word of advice

# Stream, step, batches, through, more of the same step; and a run of so many steps, up
# to this one, of as many batches each.
Step = tuple[Channel, int, int, int, bool, int]
Item = Union[Step, bytes]


class Control:
    """The control connection of one trainer process."""

    def __init__(self, settings: Settings, hello: dict[str, Any], channels: dict[int, Channel]) -> None:
        self.settings = settings
        self.outbox: deque[Item] = deque()
        # Of the outbox and of what is written to the connection: two threads do, and
        # resume() sees what is said either in the outbox or in the streams' state.
        self.lock = threading.Lock()
        self.calls = Calls()
        self.sleeping = False
        self.welcome: dict[str, Any] = {}
        self.fault: HeadraceError | None = None
        self.epoch = 1  # number of the control connection
        self.bell = Bell()
        self.yields = Yields(self.lock, lambda: list(channels.values()), self.bell.ring)
        self._hello = hello
        self._channels = channels
        self.rows_done = 0  # stepped in streams that are gone from _channels
        self._connection: ControlConnection | None = None
        self._thread: threading.Thread | None = None
        self._watchdog = Watchdog(1.0, 0.0, shared=False)
        self._told_to_end = False
        self._next_stats = self._linger_until = 0.0
        self._linger = LINGER_SHARED
        self._stopping = False
        self._early: list[Message] = []  # came with WELCOME
        self._stop_by = 0.0
        self._stepped = 0.0  # when the last step was said
        self._waiting_since: dict[int, float] = {}

    # Called by other threads.

    def start(self, deadline: float) -> None:
        """Says HELLO and starts the thread. Raises OSError, EOFError, HeadraceError."""
        self._meet(deadline)
        self._thread = threading.Thread(target=self._run, name="headrace-control", daemon=True)
        self._thread.start()

    def post(self, item: bytes) -> None:
        """Leaves a message to send now. The caller holds `lock` while it changes
        the stream's state and posts, so that resume() sees both or neither."""
        self.outbox.append(item)
        self.bell.ring()

    def step_sent(self) -> bool:
        """Sends the one step in the outbox now, if it can be and does not come thick.
        The caller holds `lock`.

        A signal's exception in between has it sent twice, which is as good as once.
        """
        connection, now = self._connection, time.monotonic()
        thick = now - self._stepped < THICK
        self._stepped = now
        if self.yields.due:
            self.yields.stepped()
            return False  # YIELDS_PAUSED may have to follow it
        if thick or connection is None or len(self.outbox) != 1 or connection.pending:
            return False
        item = self.outbox[0]
        if isinstance(item, bytes):
            return False
        connection.send_now(self._leaves(item))
        self.outbox.popleft()
        return not connection.pending

    def _leaves(self, item: Step) -> bytes:
        """STEP, about to be sent: its stream knows of it before the answer can come."""
        channel, step, batches, through, more, run = item
        channel.said(step, batches, through, run)
        if run == 1 or self.welcome.get("step_runs"):
            return wire.encode_step(channel.number, step, batches, through, more, run)
        each = [(step - n, through - n * batches) for n in range(run - 1, -1, -1)]
        return b"".join([wire.encode_step(channel.number, s, batches, t) for s, t in each])

    def call(self, fields: dict[str, Any]) -> int:
        """Posts a CALL, behind the steps that were said before; gives its id."""
        with self.lock:
            number, message = self.calls.new(fields)
            self.post(message)
        return number

    @property
    def trust(self) -> float:
        """Until when batches may be yielded, as far as we know (time.monotonic())."""
        return self._watchdog.trust

    def await_trust(self, channel: Channel) -> None:
        """Waits until the agent has answered that its session is good.

        Raises what ends the stream. The watchdog bounds the wait: it ends a process,
        or fails its streams, when the agent stays silent.
        """
        began, said = time.monotonic(), False
        try:
            while (now := time.monotonic()) >= channel.trust:
                if channel.fault is not None:
                    raise channel.fault
                if channel.closed:
                    raise HeadraceError("the stream is closed")
                if now >= self._watchdog.trust:
                    self._watchdog.eager = True
                    self.bell.ring()
                elif not said and now >= channel.unanswered.until:
                    said = True
                    self._say_unanswered(channel, now)
                channel.changed.wait(0.1)
            if said:
                log.warning("%s: the steps are answered, after %.1f s: next() goes on", channel.open["dataset"],
                            now - began)  # fmt: skip
        finally:
            channel.yields_paused_seconds += time.monotonic() - began

    @staticmethod
    def _say_unanswered(channel: Channel, now: float) -> None:
        log.warning(
            "%s: next() waits, because steps have been unanswered for %.1f s (max_unanswered is %.1f s). If this node "
            "were lost now, %d stepped batches would come again",
            channel.open["dataset"], now - channel.unanswered.since, channel.unanswered.bound,
            channel.stepped - channel.acked,
        )  # fmt: skip

    def stop(self, patience: float) -> None:
        """Sends what is left, waits for the answers to steps, says BYE."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._stop_by = time.monotonic() + patience
            self._stopping = True
            self.bell.ring()
            self._thread.join(patience + 1)
        self.bell.close()

    def abandon(self) -> None:
        """In a forked child: closes its copies of what is the parent's."""
        if self._connection is not None:
            self._connection.close()
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
                if self._connection is not None:
                    self._connection.close()
                for channel in list(self._channels.values()):
                    with channel.lock:
                        channel.forget(channel.acked >= channel.stepped)

    def _turn(self) -> bool:
        """One round; True when the thread is done."""
        now = time.monotonic()
        if self._connection is None:
            if self._watchdog.expired(now, connected=False):
                self._expire()
                return True
            return self._seek(now)
        try:
            self._hear(self._connection)
            if self._watchdog.expired(now, connected=True):
                self._expire()
                return True
            try:
                self._send(self._connection, now)
            except OSError:
                self._hear(self._connection)  # why it was closed, if the agent said so
                raise
            for channel in list(self._channels.values()):
                self._trust(channel, now)
            self._advise(now)
        except (OSError, EOFError) as error:
            self._disconnected(error)
            return False
        except ProtocolError as error:
            self._fail(error)
            return True
        if self._stopping and (self._settled() or now > self._stop_by):
            goodbye(self._connection)
            return True
        self._sleep(self._connection)
        return False

    def _send(self, connection: ControlConnection, now: float) -> None:
        with self.lock:
            self._send_all(connection, now)

    def _send_all(self, connection: ControlConnection, now: float) -> None:
        while self.outbox:
            item = self.outbox.popleft()
            if isinstance(item, bytes):
                connection.send(item)
            else:
                connection.send(self._leaves(item))
                self._linger_until = now + self._linger
        if self.yields.due and (cut := self.yields.reached()):
            connection.send(wire.encode(wire.YIELDS_PAUSED, 0, {"cut": cut}))
        if now >= self._watchdog.due:
            t = int(now * 1e9)
            self._watchdog.sent(t / 1e9)
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
        linger = min(self._linger_until - now, self._watchdog.patience(now))
        if linger > 0 and not self._stopping:
            # Steps that come now wait for the next turn, and so do their answers: but
            # not those that somebody waits for.
            self.bell.wait(connection.sock if self.calls.open else None, False, linger)
            return
        self.sleeping = True
        if self.outbox:
            self.sleeping = False
            return
        patience = min(self._watchdog.patience(now), self._next_stats - now)
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
            session = payload.get("session_ms", self._watchdog.ttl * 1e3)
            self._watchdog.answered(sent, session / 1e3)
            self._extend()
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
                self._trust(channel, time.monotonic())
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
        self._linger = LINGER if file is not None else LINGER_SHARED
        return file

    def _extend(self) -> None:
        """Tells every stream until when it may yield."""
        now = time.monotonic()
        for channel in list(self._channels.values()):
            self._trust(channel, now)
        if self._watchdog.eager and now < self._watchdog.trust:
            self._watchdog.eager = False
            for channel in list(self._channels.values()):
                channel.changed.set()

    def _trust(self, channel: Channel, now: float) -> None:
        """Until when a stream may yield: the agent's session is good, and the steps are answered."""
        trust = self._watchdog.trust
        if self._watchdog.shared and channel.tracked:
            unanswered = channel.unanswered
            unanswered.bound = channel.open.get("max_unanswered") or self._watchdog.ttl
            unanswered.look(now, channel.stepped, channel.acked)
            trust = min(trust, unanswered.until)
        waited, channel.trust = now >= channel.trust, trust
        if waited and now < trust:
            channel.changed.set()

    def _answered_call(self, payload: dict[str, Any]) -> None:
        answer = self.calls.answered(payload)
        if answer is not None and answer.code == "fenced":
            self._fail(Fenced(f"this process is not of the group any more: {answer.reason}"))

    def _quit(self, reason: str) -> None:
        self._told_to_end = True
        self._fail(Fenced(f"the agent ends this process: {reason}"))
        os.write(2, f"headrace: the agent ends process {os.getpid()}: {reason}\n".encode())
        os.kill(os.getpid(), signal.SIGTERM)

    def _advise(self, now: float) -> None:
        """Nothing ends while somebody holds unstepped batches; say so if it is us. A rank
        that came alone gets nothing before the others have restored; say so too."""
        for channel in list(self._channels.values()):
            if channel.waiting and channel.state == "restore":
                self._advise_alone(channel, now)
                continue
            held = channel.yielded - channel.stepped
            if channel.waiting and not held and channel.state == "drained" and self._read_in_turns(channel):
                self._advise_turns(channel, now)
                continue
            if not (channel.waiting and channel.tracked and held and channel.state == "drained"):
                self._waiting_since.pop(channel.number, None)
                continue
            since = self._waiting_since.setdefault(channel.number, now)
            if now - since > STUCK:
                self._waiting_since[channel.number] = float("inf")
                log.warning(
                    "%s: all other records are out or done, and next() waits while this process holds %d unstepped "
                    "batches, without which there is no end: stream.step(batches=%d) before asking for more",
                    channel.open["dataset"], held, held,
                )  # fmt: skip

    def _advise_alone(self, channel: Channel, now: float) -> None:
        since = self._waiting_since.setdefault(channel.number, now)
        if now - since > STUCK:
            self._waiting_since[channel.number] = float("inf")
            log.warning("%s: next() waits: %s", channel.open["dataset"], channel.reason)

    def _read_in_turns(self, channel: Channel) -> bool:
        """The thread that waits reads another stream of the same dataset, too. What lies there
        comes to nobody while it waits. Streams of virtual ranks, and of rounds, have their own shares."""
        if channel.open.get("virtual") is not None or channel.open.get("rounds"):
            return False
        return any(
            other is not channel
            and other.open["dataset"] == channel.open["dataset"]
            and not (other.closed or other.ended or other.waiting)
            and other.iterator in (0, channel.iterator)
            for other in list(self._channels.values())
        )

    def _advise_turns(self, channel: Channel, now: float) -> None:
        since = self._waiting_since.setdefault(channel.number, now)
        if now - since > STUCK:
            self._waiting_since[channel.number] = float("inf")
            log.warning(
                "%s: all other records are out or done, and next() waits. This thread reads another stream of the "
                "same dataset too. If that stream has the rest, next() waits for ever: read one stream, or give each "
                "stream a thread that takes its batches and steps them",
                channel.open["dataset"],
            )

    # Losing the agent and finding it again.

    def _disconnected(self, error: Exception) -> None:
        assert self._connection is not None
        with self.lock:
            self._connection.close()
            self._connection = None
        for channel in list(self._channels.values()):
            channel.disconnect()
        log.warning("the agent at %s is gone (%s); waiting for it to come back", self.settings.agent, error)

    def _seek(self, now: float) -> bool:
        if self._given_up(now) or (self._stopping and self._settled()):
            return True
        try:
            self._meet(self._watchdog.deadline)
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
            self._connection = connection
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
        """Returns all streams, what to resume, and the calls without an answer. It empties the
        outbox: its calls are among those, and its steps follow from the streams' state."""
        with self.lock:
            self.epoch += 1
            for item in self.outbox:
                if not isinstance(item, bytes):
                    channel, step, batches, through, _, run = item
                    channel.said(step, batches, through, run)
            self.outbox.clear()
            channels = list(self._channels.values())
            return channels, [c.resume() for c in channels if c.opened], self.calls.unanswered()

    def _welcomed(self, welcome: dict[str, Any], sent: float, again: bool) -> None:
        ttl = ttl_of(welcome)
        self.welcome = welcome
        self._linger = LINGER_SHARED if welcome.get("model") == "shared" else LINGER
        self._watchdog = Watchdog(ttl, sent, shared=welcome.get("model") == "shared")
        if again:
            log.warning("the agent at %s is back", self.settings.agent)
        elif come := comes_again(welcome.get("pending_again"), welcome.get("again")):
            log.warning("%s: %s", welcome.get("job"), come)
        for answer in welcome.get("resumed") or ():
            channel = self._channels.get(answer.get("stream"))
            if channel is not None and answer.get("refused"):
                channel.fail(Fenced(f"what this process held belongs to others now: {answer.get('reason', '')}"))
        self._extend()  # last: no batch that was refused is yielded

    def _settled(self) -> bool:
        if self.outbox or (self._connection is not None and self._connection.pending):
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
        silent = time.monotonic() - self._watchdog.heard
        why = f"the agent at {self.settings.agent} was not heard for {silent:.1f} s"
        holding = self._told_to_end or any(channel.holds() for channel in list(self._channels.values()))
        if holding and self.welcome.get("model") == "shared":
            end_process(f"{why}, and what this process holds goes to others, who share its model")
        if self.welcome.get("model") == "shared":
            self._fail(AgentUnavailable(f"{why}: start it again"))
            return
        self._fail(
            Fenced(f"{why}, and what this process held goes to others: start the agent and then this process again")
        )
