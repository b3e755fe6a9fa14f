"""A scripted agent that speaks the trainer socket.

It is the only fake in these tests. A test uses it where it would have to kill or
hang a real agent, or make it lie, at an exact moment. All records are of one lease
and numbered from 0; record r begins at offset 10 * r.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from frames import frame, span
from shared import FORGET, RELEASE, Lender

HEADER = struct.Struct("<IHHII")
(HELLO, WELCOME, ERROR, OPEN, OPENED, ATTACH, CREDIT, FRAME, END, STEP) = range(1, 11)
READY, ROUND = 29, 30
(ACKED, FENCED, QUIT, PAUSE, STATS, CLOSE, BYE, PING, PONG, STATE) = range(11, 21)
CALL, ANSWER = 21, 22

SCHEMA = {
    "columns": [
        {"name": "id", "dtype": "int64", "shape": [], "layout": "fixed", "mask": False},
        {"name": "dense", "dtype": "float32", "shape": [3], "layout": "fixed", "mask": True},
        {"name": "tags", "dtype": "int64", "shape": [], "layout": "ragged", "mask": False},
        {"name": "text", "dtype": "string", "shape": [], "layout": "fixed", "mask": False},
    ]
}


NAMES = {"partitions": {"7": "files:demo"}, "segments": {"7/5": "day_5.tsv"}}


def records(first: int, rows: int) -> list[np.ndarray | bytes]:
    """The buffers of SCHEMA for records [first, first + rows)."""
    ids = np.arange(first, first + rows, dtype=np.int64)
    counts = ids % 4
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    texts = [f"r{i}".encode() for i in ids.tolist()]
    text_offsets = np.concatenate([[0], np.cumsum([len(t) for t in texts])]).astype(np.int64)
    dense = (ids[:, None] + np.array([0.0, 0.25, 0.5])).astype(np.float32)
    return [
        ids * 10,
        ids,
        dense,
        (ids[:, None] % np.array([2, 3, 5]) != 0).astype(np.uint8),
        offsets,
        np.repeat(ids, counts),
        text_offsets,
        b"".join(texts),
    ]


class Stream:
    """What the agent knows of one stream."""

    def __init__(self, open_: dict[str, Any]) -> None:
        self.open = open_
        self.credit = 0
        self.sent = 0  # batches
        self.frames = 0  # over its data connection
        self.rows_sent = 0
        self.steps: list[dict[str, Any]] = []
        self.through = 0
        self.data: socket.socket | None = None
        self.lender: Lender | None = None  # the trainer takes frames in shared memory
        self.ended = False


class Agent:
    """Serves `total` records to each trainer that connects, in frames of at most `per_frame` batches."""

    def __init__(
        self,
        path: str,
        *,
        total: int = 100,
        per_frame: int = 1,
        model: str = "shared",
        ttl_ms: int = 120_000,  # so long that a process that stands still does not lose its session
        ack: bool = True,
        pong: bool = True,
        protocol: int = 1,
        last_step: int = 0,
        refuse: Callable[[dict[str, Any]], dict[str, str] | None] = lambda hello: None,
        regions: int = 0,  # of shared memory, at most
        resume_from: str = "",
        step_runs: bool = True,
        resumed: Callable[[dict[str, Any]], dict[str, Any]] = lambda entry: {"refused": False, "reason": ""},
    ) -> None:
        self.path, self.total, self.per_frame = path, total, per_frame
        self.model, self.ttl_ms, self.ack, self.pong, self.protocol = model, ttl_ms, ack, pong, protocol
        self.last_step, self.refuse, self.resumed = last_step, refuse, resumed
        self.regions = regions
        self.resume_from = resume_from  # as the specs of the job's datasets say
        #: Answers a PING: for how many ms its session with the master is still good; None
        #: sends no answer. Without this function the answer is the TTL, or none if `pong` is False.
        self.session: Callable[[dict[str, Any]], int | None] | None = None
        self.step_runs = step_runs
        self.runs: list[int] = []  # how many steps each STEP has told
        self.hold = False  # True: send no frame
        self.pings: list[int] = []  # when each PING was sent, as it says
        #: The answer to a CALL, in place of an ordinary master's; None: the ordinary one.
        self.answer: Callable[[dict[str, Any]], dict[str, Any] | None] = lambda call: None
        self.silent: set[str] = set()  # calls that are not answered
        self.bound: dict[str, str] = {}  # cut -> path
        self.epoch = 1
        self.hellos: list[dict[str, Any]] = []
        self.heard: list[tuple[int, int, dict[str, Any]]] = []  # type, stream, payload
        #: Returns the names block of a frame. The argument counts the frames that its connection has carried before.
        self.names: Callable[[int], dict[str, Any] | None] = lambda before: None if before else NAMES
        self.credits: list[int] = []
        self.ready = 0  # the round that READY named last
        self.streams: dict[int, Stream] = {}
        self.changed = threading.Condition()
        self.control: socket.socket | None = None
        self.closed = 0  # connections that were closed by the trainer
        self.errors: list[BaseException] = []
        self._connections: list[socket.socket] = []
        self._listener = socket.socket(socket.AF_UNIX)
        if os.path.exists(path):
            os.unlink(path)
        self._listener.bind(path)
        self._listener.listen(16)
        threading.Thread(target=self._accept, daemon=True).start()

    # Tests call these.

    def wait(self, condition: Callable[[], Any], seconds: float = 120) -> Any:
        """Waits for a condition over what was heard; fails the test in time."""
        with self.changed:
            assert self.changed.wait_for(lambda: bool(condition()) or self.errors, seconds), (
                f"not true after {seconds} s"
            )
        assert not self.errors, self.errors
        return condition()

    def of(self, type_: int) -> list[dict[str, Any]]:
        return [payload for t, _, payload in self.heard if t == type_]

    def tell(self, type_: int, stream: int = 0, payload: dict[str, Any] | None = None) -> None:
        assert self.control is not None
        self._send(self.control, type_, stream, payload)

    def tell_data(self, stream: int, type_: int, payload: dict[str, Any] | bytes | None = None) -> None:
        data = self.streams[stream].data
        assert data is not None
        self._send(data, type_, stream, payload)

    def holds(self) -> None:
        """Sends no more frames. When it returns, no frame is being sent."""
        with self.changed:
            self.hold = True

    def ends_session(self, left_ms: int = 1) -> None:
        """Answers the newest PING once more: the session ends so many ms from now. Answers no later PING."""
        self.wait(lambda: self.pings)
        with self.changed:
            self.session = lambda ping: None
            sent = self.pings[-1]
            since = time.monotonic_ns() - sent
            self.tell(PONG, 0, {"t": sent, "session_ms": since // 1_000_000 + left_ms})

    def release(self) -> None:
        """Sends the frames that were held back, if the trainer still listens."""
        with self.changed, contextlib.suppress(OSError):  # either side may have closed the socket
            self.hold = False
            for number in self.streams:
                self._push(number)

    def send_frame(self, stream: int) -> None:
        """Sends one more frame, while others are held back."""
        with self.changed:
            s = self.streams[stream]
            left, s.credit, self.hold = s.credit - self.per_frame, self.per_frame, False
            assert left >= 0
            self._push(stream)
            s.credit, self.hold = left, True

    def kill(self) -> None:
        """Ends the agent as kill -9 does."""
        with self.changed:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)  # ends accept()
            self._listener.close()
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
                connection.close()
        if os.path.exists(self.path):
            os.unlink(self.path)

    # These answer the trainer's messages.

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            while (message := self._receive(connection)) is not None:
                with self.changed:
                    self._on(connection, *message)
                    self.changed.notify_all()
        except OSError:
            pass  # killed, by a test or by itself
        except BaseException as error:
            with self.changed:
                self.errors.append(error)
        connection.close()
        with self.changed:
            self.closed += 1
            self.changed.notify_all()

    def _receive(self, connection: socket.socket) -> tuple[int, int, int, Any] | None:
        head = self._exactly(connection, HEADER.size)
        if head is None:
            return None
        length, type_, flags, stream, number = HEADER.unpack(head)
        assert flags == 0
        body = self._exactly(connection, length) if length else b""
        assert body is not None
        if type_ in (RELEASE, FORGET):
            return type_, stream, number, body
        return type_, stream, number, json.loads(body) if body else {}

    @staticmethod
    def _exactly(connection: socket.socket, size: int) -> bytes | None:
        data = b""
        while len(data) < size:
            more = connection.recv(size - len(data))
            if not more:
                return None
            data += more
        return data

    def _send(
        self, connection: socket.socket, type_: int, stream: int = 0, payload: Any = None, number: int = 0
    ) -> None:
        body = payload if isinstance(payload, bytes) else b"" if payload is None else json.dumps(payload).encode()
        connection.sendall(HEADER.pack(len(body), type_, 0, stream, number) + body)

    def _on(self, connection: socket.socket, type_: int, stream: int, number: int, payload: Any) -> None:
        if type_ == PING:
            self.pings.append(payload["t"])
            left = self.session(payload) if self.session else self.ttl_ms if self.pong else None
            if left is not None:
                self._send(connection, PONG, 0, {"t": payload["t"], "session_ms": left})
            return
        if type_ in (RELEASE, FORGET):
            lender = self.streams[stream].lender
            assert lender is not None, "the trainer released shared memory, but none was offered"
            lender.on(type_, payload)
            return
        if type_ == STEP:
            self._run(stream, payload)
            return
        if type_ == READY:  # it answers as if every rank had the rows that this one has
            self.ready = number
            self._send(connection, ROUND, stream, {"through": number, "rows": []})
            return
        self.heard.append((type_, stream, payload))
        if type_ == HELLO:
            self._hello(connection, payload)
        elif type_ == OPEN:
            self._open(connection, stream, payload)
        elif type_ == ATTACH:
            self.streams[stream].data = connection
            self.streams[stream].frames = 0
            if self.regions and payload.get("regions"):
                self.streams[stream].lender = Lender(self.regions)
        elif type_ == CREDIT:
            self.credits.append(number)
            self.streams[stream].credit += number
            self._push(stream)
        elif type_ == CALL and payload["call"] not in self.silent:
            answer = {"code": "ok", "reason": "", **(self.answer(payload) or self._call(payload))}
            self._send(connection, ANSWER, 0, {"id": payload["id"], **answer})

    def _hello(self, connection: socket.socket, hello: dict[str, Any]) -> None:
        self.hellos.append(hello)
        refusal = self.refuse(hello)
        if refusal is not None:
            self._send(connection, ERROR, 0, refusal)
            connection.shutdown(socket.SHUT_RDWR)
            return
        self.control = connection
        resumed = []
        for entry in hello.get("resume", []):
            resumed.append(dict(self.resumed(entry), stream=entry["stream"]))
            stream = self.streams[entry["stream"]] = Stream(entry["open"])
            batches = entry["batches"]
            stream.sent = batches[-1]["number"] if batches else entry["acked"]
            last = max((s[8] for b in batches for s in b["spans"]), default=entry["acked"] * entry["open"]["rows"] * 10)
            stream.rows_sent = last // 10
            stream.through = entry["through"]
        self._send(
            connection,
            WELCOME,
            0,
            {
                "protocol": self.protocol,
                "version": "0.1.0",
                "job": "demo",
                "model": self.model,
                "generation": 4,
                "epoch": 1,
                "last_step": self.last_step,
                "ttl_ms": self.ttl_ms,
                "agent": "a1",
                "pending_again": 0,
                "resumed": resumed,
                "resume_from": hello["resume_from"] or self.resume_from,
                **({"step_runs": True} if self.step_runs else {}),
            },
        )
        for number, stream in self.streams.items():
            if self.ack and stream.through:
                self._send(connection, ACKED, number, {"through": stream.through})

    def _open(self, connection: socket.socket, number: int, payload: dict[str, Any]) -> None:
        if payload["dataset"] == "nowhere":
            error = {"code": "not_found", "message": "no dataset nowhere", "hint": "there are: clicks"}
            self._send(connection, ERROR, number, error)
            return
        self.streams[number] = Stream(payload)
        self._send(connection, OPENED, number, {"schema": SCHEMA, "dataset_id": 3, "unit": "bytes"})

    def _run(self, number: int, payload: dict[str, Any]) -> None:
        """Notes each step of a STEP as a message of its own."""
        run = payload.pop("run", 1)
        assert run == 1 or (run > 1 and self.step_runs and payload["batches"] > 0 and "more" not in payload), payload
        self.runs.append(run)
        for n in range(run - 1, -1, -1):
            through = payload["through"] - n * payload["batches"]
            step = dict(payload, step=payload["step"] - n, through=through)
            self.heard.append((STEP, number, step))
            self._step(number, step)

    def _step(self, number: int, payload: dict[str, Any]) -> None:
        stream = self.streams[number]
        stream.steps.append(payload)
        assert payload["through"] >= stream.through, "a step arrived after a later one"
        stream.through = payload["through"]
        if self.ack and self.control is not None:
            self._send(self.control, ACKED, number, {"through": stream.through})
        self._finish(number)

    def body(self, cut: str, step: int) -> dict[str, Any]:
        """A cut that names its step and no records."""
        hello = self.hellos[-1]
        body = {
            "version": 1,
            "id": cut,
            "job": "demo",
            "model": self.model,
            "epoch": self.epoch,
            "generation": 4,
            "world_size": hello["world_size"],
            "step": step,
            "exact": self.model != "shared",
            "datasets": [{"name": "clicks", "unit": "bytes", "partitions": []}],
        }
        return dict(body, rank=hello["rank"]) if self.model == "private" else body

    def _call(self, call: dict[str, Any]) -> dict[str, Any]:
        if call["call"] == "ask":
            last = max((p["step"] for s in self.streams.values() for p in s.steps), default=self.last_step)
            assert call["step"] <= last, "the cut was asked for before its step had arrived"
            body = self.body(call["cut"], call["step"])
            return {"cut": call["cut"], "step": call["step"], "path": call["path"], "body": body}
        if call["call"] == "bind":
            self.bound[call["cut"]] = call["path"]
        elif call["call"] == "drop":
            self.bound.pop(call["cut"], None)
        elif call.get("body") is not None:
            self.epoch += 1
            body = call["body"]
            return {"cut": body["id"], "step": body["step"], "path": call["path"], "epoch": self.epoch, "again": 7}
        return {"cut": "0" * 16, "epoch": self.epoch}

    def _push(self, number: int) -> None:
        stream = self.streams[number]
        per_batch = stream.open["rows"]
        while stream.data is not None and stream.credit and stream.rows_sent < self.total and not self.hold:
            batches = min(stream.credit, self.per_frame)
            rows = min(batches * per_batch, self.total - stream.rows_sent)
            batches = -(-rows // per_batch)
            payload = frame(
                records(stream.rows_sent, rows),
                [span(rows, 10 * stream.rows_sent, 10 * (stream.rows_sent + rows))],
                rows=rows,
                per_batch=per_batch,
                first=stream.sent + 1,
                last=stream.rows_sent + rows == self.total,
                names=self.names(stream.frames),
            )
            stream.frames += 1
            stream.credit -= batches
            stream.sent += batches
            stream.rows_sent += rows
            if stream.lender is None or not stream.lender.send(stream.data, number, payload, batches):
                self._send(stream.data, FRAME, number, payload, batches)
        self._finish(number)

    def _finish(self, number: int) -> None:
        stream = self.streams[number]
        settled = stream.through == stream.sent or not stream.open["track"]
        if stream.data is not None and stream.rows_sent >= self.total and settled and not stream.ended:
            stream.ended = True
            self._send(stream.data, END, number)


def poll(condition: Callable[[], Any], seconds: float = 300) -> None:
    """Waits for something that gives no signal; fails the test in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not true after {seconds} s"
        time.sleep(0.002)
