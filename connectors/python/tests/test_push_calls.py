"""How a pusher calls a master. The master is played here, so that it can fail at an exact call."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import headrace
import pytest
from headrace import _master, _push
from headrace._chunk import Builder
from headrace._upload import Uploader

LAYOUT = {"partitions": 1, "chunk_bytes": 1, "max_chunk_bytes": 1 << 26, "max_record": 1 << 20, "key": ""}


class Played(ThreadingHTTPServer):
    """A master that takes everything. For each page in `cut` it closes the connection of the next call
    without an answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Page)
        self.cut: list[str] = []
        self.held: dict[str, threading.Event] = {}  # page -> the event that its calls wait for
        self.holding = threading.Event()  # set when a call waits
        self.refused: list[str] = []  # pages that refuse every call
        self.busy: list[str] = []  # pages that answer their next call with "busy"
        self.missing: list[str] = []  # pages that a master of an older version does not have
        self.calls: list[str] = []
        self.paths: list[str] = []
        self.bodies: list[bytes] = []
        self.locator = "1 key 1 1 00000000"
        self.layout: dict[str, Any] = {}  # replaces values of LAYOUT

    def answer(self, path: str) -> dict[str, Any]:
        if path.endswith("/layout"):
            return {"layout": {**LAYOUT, **self.layout}}
        if "/chunks" in path:
            return {"locators": [self.locator]}
        return {"already": False, "records": 1}


class _Page(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Played

    def do_GET(self) -> None:
        self.server.bodies.append(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
        page = self.path.split("?")[0].rsplit("/", 1)[1]
        self.server.calls.append(page)
        self.server.paths.append(self.path)
        if page in self.server.cut:
            self.server.cut.remove(page)
            self.close_connection = True
            return
        if page in self.server.busy:
            self.server.busy.remove(page)
            self.send_error(503, "the disk is full")
            return
        if page in self.server.missing:
            self.send_error(404)
            return
        if page in self.server.held:
            self.server.holding.set()
            self.server.held[page].wait()
        body = json.dumps(self.server.answer(self.path)).encode()
        self.send_response(400 if page in self.server.refused else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Iterator[Played]:
    monkeypatch.setattr(_master, "_prove", lambda *_: None)
    with Played() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("HEADRACE_MASTER", f"127.0.0.1:{server.server_address[1]}")
        yield server
        server.shutdown()


def test_a_commit_may_take_long_and_a_master_that_is_gone_is_found(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[tuple[str, float | None]] = []
    getresponse = http.client.HTTPConnection.getresponse

    def watched(self: http.client.HTTPConnection) -> http.client.HTTPResponse:
        assert self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        options = [self.sock.getsockopt(socket.IPPROTO_TCP, o) for o in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL)]
        assert options == [10, 5]
        # With TCP_USER_TIMEOUT, a chunk that waits for room at the master would lose its connection.
        assert self.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 0
        wait = self.sock.gettimeout()
        reply = getresponse(self)
        waits.append((played.calls[-1], wait))
        return reply

    monkeypatch.setattr(http.client.HTTPConnection, "getresponse", watched)
    with headrace.Pusher("clicks") as pusher:
        for n in range(2):  # the second transaction uses the same connection
            played.cut = ["commit"]  # the connection ends, so the pusher asks again
            with pusher.begin(f"t{n}") as t:
                t.push(b"v")
            assert t.done == headrace.Pushed(f"t{n}", False, 1)
            assert pusher.landed(f"t{n}") is None
    each = [("chunks", 60.0), ("commit", 3600.0)]
    assert waits == [("layout", 60.0), *each, ("t0", 60.0), *each, ("t1", 60.0)]
    assert played.calls.count("commit") == 4


def test_the_most_bytes_of_a_commit_are_those_that_a_master_reads() -> None:
    pages = (Path(__file__).parents[3] / "master" / "landing" / "pages.go").read_text()
    found = re.search(r"const maxCommit = (\d+) << (\d+)", pages)
    assert found is not None
    assert int(found[1]) << int(found[2]) == _push.MOST_COMMIT


@pytest.mark.parametrize("limit", ["bytes", "chunks"])
def test_the_chunk_that_makes_a_commit_too_large_is_refused(
    played: Played, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    with headrace.Pusher("clicks") as pusher:
        if limit == "bytes":  # five locators and one more comma fit
            monkeypatch.setattr(_push, "MOST_COMMIT", len(json.dumps({"locators": [played.locator] * 5})) + len(", "))
        else:
            monkeypatch.setattr(_push, "MOST_CHUNKS", 5)
        with pusher.begin("five") as t:
            for _ in range(5):
                t.push(b"v")
        t = pusher.begin("six")
        with pytest.raises(headrace.PushError, match=r"'six' has 6 chunks.*make landing\.chunk in the spec"):
            for _ in range(6 + _push._STAGING + 1):  # so many chunks may leave before the pusher knows
                t.push(b"v")
        assert played.calls.count("chunks") <= 5 + 6 + _push._STAGING
        with pytest.raises(headrace.PushError, match="transaction 'six' has 6 chunks"):
            t.commit()
        # A commit of chunks that several processes have staged has the same limit.
        pusher.commit("together", [played.locator] * 5)
        with pytest.raises(headrace.PushError, match="transaction 'together' has 6 chunks"):
            pusher.commit("together", [played.locator] * 6)
        assert played.calls.count("commit") == 2


def test_a_limit_that_was_raised_holds_for_the_next_transaction(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    played.layout = {"max_record": 1, "chunk_bytes": 100}
    with headrace.Pusher("clicks") as pusher:
        with pytest.raises(ValueError, match="max_record of dataset clicks is 1"):
            pusher.begin("large").push(b"xy")
        played.layout = {"max_record": 2, "chunk_bytes": 100}
        for name in "large", "another":  # only the first one asks
            pusher.begin(name).push(b"xy")
            assert played.calls.count("layout") == 2
        monkeypatch.setattr(_push, "MOST_CHUNKS", 1)
        with pytest.raises(headrace.PushError, match=r"make landing\.chunk in the spec larger"):
            pusher.commit("many", [played.locator] * 2)
        pusher.begin("many").push(b"xy")
        assert played.calls.count("layout") == 3


def in_thread(do: Callable[[], object]) -> Callable[[], BaseException | None]:
    """Runs `do` in a thread. Returns a function that waits for its end and returns what it has raised."""
    raised: list[BaseException | None] = [None]

    def run() -> None:
        try:
            do()
        except BaseException as error:
            raised[0] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def end() -> BaseException | None:
        thread.join(300)
        assert not thread.is_alive(), "the call has not ended"
        return raised[0]

    return end


def landed(played: Played) -> tuple[dict[str, Any], list[bytes]]:
    """What the last call of `land` has named, and the chunks that it carried."""
    head, body = int(played.paths[-1].partition("?head=")[2]), played.bodies[-1]
    named, rest = json.loads(body[:head]), body[head:]
    heads = [rest[28 * i : 28 * (i + 1)] for i in range(len(named["partitions"]))]
    rest, chunks = rest[28 * len(heads) :], []
    for h in heads:
        size = int.from_bytes(h[16:20], "little")
        chunks.append(h + rest[:size])
        rest = rest[size:]
    assert not rest
    return named, chunks


def chunk_of(*values: bytes) -> bytes:
    builder = Builder()
    for v in values:
        builder.plain(v)
    return builder.seal(compress=False)


def test_what_is_not_sent_yet_goes_with_the_commit(played: Played) -> None:
    played.layout = {"partitions": 3, "chunk_bytes": 60, "land_bytes": 100}
    with headrace.Pusher("clicks") as pusher:
        t = pusher.begin("t")
        for i in range(7):  # ten records fill a chunk
            t.push(b"%d" % i, key="abcdef"[i % 6])  # in two partitions
        played.cut = ["land"]  # the connection ends, so the pusher asks again
        assert t.commit() == headrace.Pushed("t", False, 1)
        assert played.calls == ["layout", "land", "land"]
        assert played.bodies[1] == played.bodies[2]
        named, chunks = landed(played)
        assert named["locators"] == []
        assert named["partitions"] == sorted(set(named["partitions"]))
        assert sum(int.from_bytes(c[8:12], "little") for c in chunks) == 7
        played.calls.clear()
        with pusher.begin("u") as u:
            for i in range(14):
                u.push(b"%d" % i)
            u._wait(0)
        assert played.calls == ["chunks", "land"]
        named, chunks = landed(played)
        assert named["locators"] == [played.locator]
        assert chunks == [chunk_of(*[b"%d" % i for i in range(9, 14)])]  # the first nine took 63 bytes at most
        # While another chunk is on its way, the rest is staged instead.
        played.calls.clear()
        played.held["chunks"] = threading.Event()
        w = pusher.begin("w")
        for i in range(14):
            w.push(b"%d" % i)
        assert played.holding.wait(300)
        played.holding.clear()
        ended = in_thread(w.commit)
        assert played.holding.wait(300)  # the second chunk has come while the first one waits
        played.held.pop("chunks").set()
        assert ended() is None
        assert played.calls == ["chunks", "chunks", "commit"]
    played.layout["land_bytes"] = 20
    with headrace.Pusher("clicks") as pusher:
        for records, last in ((2, "land"), (3, "commit")):  # a record counts 7 bytes at most: 14, and 21
            with pusher.begin() as t:
                for _ in range(records):
                    t.push(b"v")
            assert played.calls[-1] == last


def test_after_a_commit_in_one_call_was_lost_the_rest_can_be_staged(played: Played) -> None:
    played.layout = {"chunk_bytes": 1000, "land_bytes": 1000}
    played.refused = ["land"]
    with headrace.Pusher("clicks") as pusher:
        t = pusher.begin("t")
        t.push(b"a")
        t.push(b"b", time=7)
        for _ in range(2):
            with pytest.raises(headrace.PushError):
                t.commit()
        with pytest.raises(headrace.PushError, match="was staged or committed"):
            t.push(b"c")
        sent = landed(played)[1]
        assert t.stage() == [played.locator]
        assert played.bodies[-1] == sent[0]
        assert t.commit() == headrace.Pushed("t", False, 1)
        assert played.calls[-3:] == ["land", "chunks", "commit"]


def test_a_transaction_goes_on_with_a_master_of_an_older_version(played: Played) -> None:
    played.layout = {"chunk_bytes": 1000, "land_bytes": 1000}
    with headrace.Pusher("clicks") as pusher:
        for name in ("t", "u"):  # before "u" the pusher asks for the layout again
            t = pusher.begin(name)
            t.push(b"a")
            played.layout["land_bytes"] = 0
            played.missing = ["land"]
            assert t.commit() == headrace.Pushed(name, False, 1)
        assert played.calls == ["layout", "land", "chunks", "commit", "layout", "chunks", "commit"]
        played.missing = ["commit"]
        with pytest.raises(headrace.PushError, match="has no such page: it is of an older version"):
            pusher.commit("v", [])


@pytest.mark.parametrize("page", ["chunks", "commit", "land"])
def test_patience_ends_a_call_that_the_master_does_not_answer(played: Played, page: str) -> None:
    played.held[page] = threading.Event()
    if page == "land":
        played.layout = {"chunk_bytes": 100, "land_bytes": 100}
    with headrace.Pusher("clicks") as pusher:
        t = pusher.begin("t")
        if page == "commit":
            t.push(b"v")
            t.stage()
        pusher._master.patience = 0.2  # not earlier: the calls before this one must succeed
        if page != "commit":
            t.push(b"v")
        error = in_thread(t.commit)()
        assert isinstance(error, headrace.MasterUnavailable), error
        assert "no answer within 0.2 s" in str(error)
    played.held.pop(page).set()


class Clock:
    """A clock that moves only when the test sets it."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_the_reason_of_the_last_answer_is_told_when_patience_cuts_a_call_short(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(_master, "time", clock)
    played.busy, played.held["commit"] = ["commit"], threading.Event()

    def told(_: str) -> None:
        clock.now = 3600.0

    with headrace.Pusher("clicks", patience=3600, on_wait=told) as pusher:
        error = in_thread(lambda: pusher.commit("t", []))()
        assert isinstance(error, headrace.MasterUnavailable), error
        assert "the disk is full" in str(error)
    played.held.pop("commit").set()


def test_close_ends_a_commit_that_waits(played: Played) -> None:
    played.held["commit"] = threading.Event()
    pusher = headrace.Pusher("clicks")
    t = pusher.begin("t")
    t.push(b"v")
    ended = in_thread(t.commit)
    assert played.holding.wait(300)
    pusher.close()
    error = ended()
    assert isinstance(error, headrace.PushError), error
    assert str(error) == "the pusher was closed"
    played.held.pop("commit").set()


def test_close_ends_a_commit_that_waits_for_the_bucket(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    played.layout = {"upload": {"url": "s3://lake/pushed", "stream": "clicks-1", "now_ms": 1_700_000_000_000}}
    waits = threading.Event()
    with socket.socket() as nobody:  # has the port, and does not listen
        nobody.bind(("127.0.0.1", 0))
        for name, value in (
            ("AWS_ACCESS_KEY_ID", "key"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("AWS_ENDPOINT_URL_S3", f"http://127.0.0.1:{nobody.getsockname()[1]}"),
        ):
            monkeypatch.setenv(name, value)
        pusher = headrace.Pusher("clicks", upload=True, on_wait=lambda _: waits.set())
        t = pusher.begin("t")
        t.push(b"v")
        ended = in_thread(t.commit)
        assert waits.wait(300)
        pusher.close()
        error = ended()
    assert isinstance(error, headrace.PushError), error
    assert str(error) == "the pusher was closed"


def interrupted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupts the next wait of this thread, as Ctrl-C does."""
    wait, me, left = threading.Condition.wait, threading.get_ident(), [KeyboardInterrupt()]

    def interrupted(self: threading.Condition, timeout: float | None = None) -> bool:
        if threading.get_ident() == me and left:
            raise left.pop()
        return wait(self, timeout)

    monkeypatch.setattr(threading.Condition, "wait", interrupted)


def test_a_commit_goes_on_after_an_interrupt(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    played.held["chunks"] = threading.Event()
    with headrace.Pusher("clicks") as pusher:
        t = pusher.begin("t")
        t.push(b"v")
        interrupted_once(monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            t.commit()
        played.held["chunks"].set()
        assert in_thread(t.commit)() is None
    assert played.calls.count("commit") == 1


def test_a_stage_that_ends_in_the_middle_repeats_nothing(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    played.layout = {"partitions": 2, "chunk_bytes": 1000, "land_bytes": 1000}
    played.refused = ["land"]
    with headrace.Pusher("clicks") as pusher:
        t = pusher.begin("t")
        for i in range(10):
            t.push(b"%d" % i, key="abcdef"[i % 6])
        with pytest.raises(headrace.PushError):
            t.commit()
        assert landed(played)[0]["partitions"] == [0, 1]
        first = int.from_bytes(landed(played)[1][0][8:12], "little")
        send = t._send

        def interrupted(part: int) -> None:
            if part == 1:
                raise KeyboardInterrupt
            send(part)

        monkeypatch.setattr(t, "_send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            t.stage()
        monkeypatch.undo()
        t._wait(0)
        played.refused = []
        assert t.commit() == headrace.Pushed("t", False, 1)
        named, chunks = landed(played)
        assert named["locators"] == [played.locator]  # partition 0 was staged, partition 1 goes with the commit
        assert named["partitions"] == [1]
        assert int.from_bytes(chunks[0][8:12], "little") == 10 - first


def test_a_chunk_whose_thread_does_not_start_is_sent_later(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    with headrace.Pusher("clicks") as pusher:
        t = pusher.begin("t")

        def none(_: threading.Thread) -> None:
            raise RuntimeError("can't start new thread")

        with monkeypatch.context() as m, pytest.raises(RuntimeError, match="new thread"):
            m.setattr(threading.Thread, "start", none)
            t.push(b"v")
        staged: list[list[str]] = []
        assert in_thread(lambda: staged.append(t.stage()))() is None
    assert staged == [[played.locator]]
    assert played.calls.count("chunks") == 1


def test_a_transaction_whose_chunk_was_refused_raises_that_each_time(played: Played) -> None:
    with headrace.Pusher("clicks") as pusher:
        t = pusher.begin("t")
        played.refused.append("chunks")
        t.push(b"v")
        for _ in range(2):
            with pytest.raises(headrace.PushError):
                t.commit()
            played.refused.clear()
    assert played.calls.count("commit") == 0


def test_a_large_body_leaves_in_pieces_each_with_its_own_time(played: Played, monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[int] = []
    send = http.client.HTTPConnection.send

    def watched(self: http.client.HTTPConnection, data: Any) -> None:
        left.append(len(data))
        send(self, data)

    body = bytes(range(256)) * 4097
    with headrace.Pusher("clicks") as pusher:
        monkeypatch.setattr(http.client.HTTPConnection, "send", watched)
        pusher._master.ask("POST", "/v1/datasets/clicks/transactions/t/chunks?partition=0", body)
    assert played.bodies[-1] == body
    assert max(left) <= _master._PIECE
    assert sum(left[1:]) == len(body)


class ClientError(Exception):
    """botocore's, as far as it matters."""

    def __init__(self, status: int) -> None:
        super().__init__(f"An error occurred ({status}) when calling the PutObject operation")
        self.response = {"Error": {"Code": "?"}, "ResponseMetadata": {"HTTPStatusCode": status}}


class Bucket:
    """A client of S3 that puts again when the answer to a put is lost, as boto3's does."""

    def __init__(self, status: int) -> None:
        self.objects: dict[str, bytes] = {}
        self._status = status

    def put_object(self, **said: Any) -> None:
        assert (said["Bucket"], said["IfNoneMatch"]) == ("lake", "*")
        if self._status == 412:
            self.objects[said["Key"]] = said["Body"]
        raise ClientError(self._status)


@pytest.mark.parametrize("prefix", ["pushed", "my data/a%20b", "a#b?c"])
def test_a_chunk_that_boto3_has_put_twice_is_staged(prefix: str) -> None:
    """Its first try has put the chunk, and the answer was lost. The second one finds an object there. It lies below the
    prefix as the master has written it."""
    builder = Builder()
    builder.plain(b"x")
    chunk, place = builder.seal(), {"url": f"s3://lake/{prefix}", "stream": "clicks-1", "now_ms": 1_700_000_000_000}
    bucket = Bucket(412)
    locator = Uploader(place, bucket, 0.0).stage("t", 3, chunk, None, print, time.sleep)
    ((key, stored),) = bucket.objects.items()
    assert locator.split()[:3] == ["1", key.removeprefix(f"{prefix}/"), str(len(stored))]
    assert stored == chunk
    with pytest.raises(ClientError, match="403"):
        Uploader(place, Bucket(403), 0.0).stage("t", 3, chunk, None, print, time.sleep)
