"""The data connection of a stream: credits out, frames in.

Owned by the iterating thread. A signal's exception may interrupt everything here; the next
call goes on where it was.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _messages as wire
from ._channel import Channel
from ._credits import Credits
from ._errors import AgentUnavailable, HeadraceError, ProtocolError, RestoreNeeded, from_wire
from ._frame import Frame, Names, parse
from ._receive import Receiver
from ._regions import Regions, wanted
from ._wire import connect

FIRST_SECONDS = 0.05  # between two looks around while the first frame is awaited
LOOK_SECONDS = 60.0  # of one wait for more, if it has a deadline: poll() takes no number of any size
NOTICE_SECONDS = 10.0  # for the control thread to see that an agent is gone


class Feed:
    """Frames of one stream, in order, over as many connections as it takes."""

    def __init__(self, path: str, incarnation: str, channel: Channel) -> None:
        #: Held by the thread that asks for the next batch.
        self.asking = threading.RLock()
        #: next() may yield up to this batch without asking us for anything.
        self.carefree_until = 0
        self._path = path
        self._incarnation = incarnation
        self._channel = channel
        self._credits = Credits()
        self._names = Names()
        self._frame = Frame.empty()
        self._sock: socket.socket | None = None
        self._hello_sent: list[int] = []
        self._receiver: Receiver | None = None
        self._regions = Regions()
        self._connection = 0  # the control connection that the data connection belongs to
        self._granted = 0  # number of the last batch that there is credit for
        self._since = 0.0  # when the trainer got the current frame; 0: it has none
        self._noticed_by = 0.0  # when the control thread must have seen that the agent is gone; 0: nothing to see

    def frame(self, yielded: int) -> Frame | None:
        """The frame that holds batch yielded + 1; None at the end."""
        if not self.await_frame(yielded):
            return None
        self._replenish(yielded)
        # At what batch the next credit is due.
        due = self._granted - self._credits.window + self._credits.per_frame
        self.carefree_until = min(self._frame.end, max(due, yielded + 1))
        return self._frame

    def await_frame(self, yielded: int, until: float | None = None) -> bool | None:
        """True: the frame that holds batch yielded + 1 is here. False: there is none, the
        input has ended. None: neither was known at `until`, by time.monotonic()."""
        channel = self._channel
        if channel.fault is not None:
            self._drop()
            raise channel.fault
        if yielded < self._frame.end:
            return True
        self._frame_used()
        self._replenish(yielded)
        return self._wait(yielded, until)

    def _replenish(self, yielded: int) -> None:
        """Gives credit for another frame once there is room for one."""
        count = self._credits.window - (self._granted - yielded)
        if self._sock is None or self._receiver is None or count < self._credits.per_frame:
            return  # without a receiver (an interrupted attach) self._regions are the last connection's
        free, told = self._regions.news(self._channel.number)
        with contextlib.suppress(OSError):  # the next read sees it too
            self._sock.sendall(free + wire.encode(wire.CREDIT, self._channel.number, number=count))
        self._granted += count
        if free:
            self._regions.told(told)

    # Frames.

    def _wait(self, yielded: int, until: float | None) -> bool | None:
        """Waits for the next frame; False at the end, None at `until`."""
        channel = self._channel
        began = time.monotonic()
        channel.waiting = True
        try:
            while True:
                if channel.fault is not None:
                    self._drop()
                    raise channel.fault
                if channel.ended:
                    self._drop()
                    return False
                if channel.closed:  # by another thread
                    self._drop()
                    raise HeadraceError("the stream is closed")
                if not self._next_until(yielded, until):
                    return None
                if yielded < self._frame.end:
                    return True
        finally:
            channel.waiting = False
            now = time.monotonic()
            self._since = now if yielded < self._frame.end else 0.0
            channel.wait_seconds += now - began

    def _next_until(self, yielded: int, until: float | None) -> bool:
        """Does what _next() does, or returns False at `until`: there was nothing to deal with."""
        if until is None:
            self._next(yielded)
            return True
        receiver = self._receiver
        if receiver is None:
            self._attach(yielded, until)
            return self._receiver is not None or time.monotonic() < until
        most = LOOK_SECONDS
        if not self._channel.received:
            self._may_begin()
            most = FIRST_SECONDS
        if receiver.ready(min(most, max(0.0, until - time.monotonic()))):
            self._next(yielded)
            return True
        return time.monotonic() < until

    def _next(self, yielded: int) -> None:
        """Deals with one message, or with the lack of a connection."""
        receiver = self._receiver
        if receiver is None:
            self._attach(yielded)
            return
        try:
            if not self._channel.received and not self._first(receiver):
                return
            header, payload = receiver.peek()
        except (OSError, EOFError):
            self._drop()
            return
        except ProtocolError as breach:
            self._channel.fail(breach)
            return
        try:
            self._deal_with(header, payload, receiver)
        except ProtocolError as breach:
            self._channel.fail(breach)  # for good: the connection is dropped, with what has come over it

    def _deal_with(self, header: wire.Header, payload: NDArray[np.uint8], receiver: Receiver) -> None:
        if header.type == wire.FRAME:
            self._accept(payload, header)
        elif header.type == wire.FRAME_AT:
            self._accept(self._regions.payload(payload), header)
        elif header.type == wire.REGION:
            self._regions.map(header.number, payload, receiver.descriptors())
        elif header.type == wire.FORGET:
            self._regions.forget(header.number)
        elif header.type == wire.END:
            self._channel.ended = True
        elif header.type == wire.ERROR:
            self._channel.fail(from_wire(wire.decode(header.type, payload.tobytes())))
        else:
            raise ProtocolError(f"the agent sent {wire.name(header.type)} on a data connection")
        receiver.take()
        self._regions.done()

    def _first(self, receiver: Receiver) -> bool:
        """Something of the first frame has come."""
        self._may_begin()
        return receiver.ready(FIRST_SECONDS)

    def _may_begin(self) -> None:
        """Before anything has come, a job with a past may want this process to restore.
        next() says so, and does not wait for it. Raises RestoreNeeded."""
        channel = self._channel
        if channel.state == "restore" and not channel.may_wait():
            raise RestoreNeeded(
                f"dataset {channel.open['dataset']!r}: {channel.reason or 'the job has a past'}: call "
                'Checkpointer.restore() or Stream.load_state_dict() first, or say headrace.init(resume="start") to '
                "start over"
            )

    def _accept(self, payload: NDArray[np.uint8], header: wire.Header) -> None:
        frame = parse(payload, self._channel.columns, self._names)
        self._names = frame.names
        if header.number != frame.batches or header.stream != self._channel.number:
            raise ProtocolError(
                f"a frame of {frame.batches} batches came as {header.number} batches of stream {header.stream}"
            )
        if self._channel.accept(frame, self._connection):
            self._take_frame(frame)
            self._credits.received(frame.batches, frame.size)

    def _take_frame(self, frame: Frame) -> None:
        """A frame has come; an interrupted call comes again with the same one."""
        self._frame = frame

    def _frame_used(self) -> None:
        if self._since and self._frame.batches:
            seconds = max(0.0, time.monotonic() - self._since - self._channel.yields_paused_seconds)
            self._channel.step_seconds += seconds
            self._credits.used(self._frame.batches, seconds)
        self._since = self._channel.yields_paused_seconds = 0.0

    # Connections.

    def _attach(self, yielded: int, until: float | None = None) -> None:
        """Makes a data connection as soon as a control connection is up, if that is before `until`."""
        channel = self._channel
        if self._sock is None:
            connection = self._await_control(until)
            if channel.fault is not None or channel.closed or connection in (0, self._connection):
                return
            try:
                sock = connect(self._path)
            except OSError:
                self._connection = connection  # gone again: wait for the next one
                return
            self._hello_sent = []
            self._sock, self._connection = sock, connection
        sock = self._sock
        if not channel.use(sock, self._connection):
            self._drop()
            return
        if not self._hello_sent:
            count = max(1, self._credits.window - (channel.received - yielded))
            self._granted = channel.received + count
            attach: dict[str, Any] = {"incarnation": self._incarnation}
            if wanted():
                attach["regions"] = True
            hello = wire.encode(wire.ATTACH, channel.number, attach)
            hello += wire.encode(wire.CREDIT, channel.number, number=count)
            with contextlib.suppress(OSError):  # the first read sees it too
                self._hello_sent.extend(map(sock.send, (hello,)))  # in C, as in _receive.py: sent once
        self._regions = Regions()
        self._names = Names()  # each connection is told them again
        try:
            self._receiver = Receiver(sock)
        except ValueError:  # another thread has closed the stream, and with it the socket
            self._drop()

    def _await_control(self, until: float | None) -> int:
        """The number of a control connection that we have not lost yet, or, at `until`, of the
        last one. The control thread finds the agent again or sets a fault."""
        channel = self._channel
        self._noticed_by = self._noticed_by or time.monotonic() + NOTICE_SECONDS
        while channel.fault is None and not channel.closed and channel.connection in (0, self._connection):
            now = time.monotonic()
            if channel.connection and now > self._noticed_by:
                self._noticed_by = 0.0
                raise AgentUnavailable(
                    f"the agent at {self._path} closed the data connection of a stream, but not the control "
                    "connection: see its log"
                )
            if until is not None and now >= until:
                return self._connection
            channel.changed.wait(1.0 if until is None else min(1.0, until - now))
        self._noticed_by = 0.0
        return channel.connection

    def _drop(self) -> None:
        if self._receiver is not None:
            self._receiver.close()
        self._sock = self._receiver = None
        self._channel.drop()
