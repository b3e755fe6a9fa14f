"""Pushing records into a dataset whose source is `landing` (docs/LANDING.md)."""

from __future__ import annotations

import datetime
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from types import TracebackType
from typing import Any
from urllib.parse import quote

import numpy as np

from ._chunk import Builder, Header, first_of, key_of, partition_of
from ._errors import PushError
from ._master import COMMIT_SECONDS, Master, NoPage, Target
from ._upload import Client, Uploader

#: A record: bytes and str as they are, a mapping or a list as JSON, None as a null value.
Value = bytes | bytearray | memoryview | str | Mapping[str, Any] | Sequence[Any] | None

_STAGING = 4  # chunks of a transaction that are sent at a time
MOST_CHUNKS = 250_000  # of a commit
MOST_COMMIT = 32 << 20  # bytes of a commit's body (maxCommit of master/landing)


@dataclass(frozen=True)
class Pushed:
    """The answer to a commit."""

    transaction: str
    already: bool  #: it was visible before: nothing was added now
    records: int  #: of the transaction as it is visible


def push(
    dataset: str,
    records: Iterable[Value],
    *,
    transaction: str | None = None,
    job: str | None = None,
    master: str | None = None,
    token: str | None = None,
    token_file: str | None = None,
    patience: float | None = None,
    on_wait: Callable[[str], None] | None = None,
    upload: bool | Client = False,
) -> Pushed:
    """Pushes records in one transaction: all of them become visible, or none.

    With the same ``transaction`` again, nothing is added. If it is visible already, records
    are not even read. While the master is away or the dataset is full, each call waits and
    tries again, for ``patience`` seconds or without end. upload: as in Pusher.

    Raises DatasetError (no such dataset), PushError (refused: the message says what to do),
    MasterUnavailable (patience is over), TypeError and ValueError (naming the record's number).
    """
    if isinstance(records, (str, bytes, bytearray, memoryview, Mapping)):
        raise TypeError(f"records is one {type(records).__name__}; it must be an iterable of records")
    with Pusher(
        dataset,
        job=job,
        master=master,
        token=token,
        token_file=token_file,
        patience=patience,
        on_wait=on_wait,
        upload=upload,
    ) as pusher:
        if transaction is not None:
            landed = pusher.landed(transaction)
            if landed is not None:
                return landed
        begun = pusher.begin(transaction)
        for record in records:
            begun.push(record)
        return begun.commit()


@dataclass
class _Told:
    """The master's answer: how the dataset wants its records. A transaction keeps the answer with which it began. Later
    the dataset may be deleted and applied again, or its chunks may go to another bucket."""

    partitions: int
    chunk_bytes: int
    max_chunk_bytes: int
    max_record: int
    land_bytes: int  # of records that may go with the commit, in one call; 0: the master takes none
    key: str
    upload: Uploader | None  # None: chunks go to the master
    compress: bool  # a master on this machine does that itself, and faster
    doubtful: bool = False  # a call has failed since, or a limit was reached


class Pusher:
    """Pushes to one dataset. Its methods may be called from any thread.

    The master's address and the token are found as the ``headrace`` command finds them:
    arguments, else HEADRACE_MASTER, HEADRACE_TOKEN and HEADRACE_TOKEN_FILE, else the state
    folder of the job (HEADRACE_STATE, HEADRACE_JOB, else `job:` of ./headrace.yaml). Nothing else of that file is
    read, and it is not read at all if the address and the token are given.

    patience: seconds. A call that has no answer for that long raises MasterUnavailable. So does
    a commit: it may become visible after that, and can be repeated. 0: each call is made
    once. None: it waits for ever.

    upload: this process puts chunks into the dataset's bucket itself, and only the commit goes
    to the master (landing_storage: s3://...). True takes AWS_ACCESS_KEY_ID,
    AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION and AWS_ENDPOINT_URL_S3 from the
    environment. Or give boto3.client("s3"), or any object with the same put_object: then its
    own credentials are used.
    """

    def __init__(
        self,
        dataset: str,
        *,
        job: str | None = None,
        master: str | None = None,
        token: str | None = None,
        token_file: str | None = None,
        patience: float | None = None,
        on_wait: Callable[[str], None] | None = None,
        upload: bool | Client = False,
    ) -> None:
        self._open(dataset, Target.find(job, master, token, token_file), patience, on_wait, upload)

    @classmethod
    def _to(cls, dataset: str, target: Target, patience: float | None, upload: bool | Client) -> Pusher:
        """For connectors, whose workers get the target from their driver."""
        pusher = cls.__new__(cls)
        pusher._open(dataset, target, patience, None, upload)
        return pusher

    def _open(
        self,
        dataset: str,
        target: Target,
        patience: float | None,
        on_wait: Callable[[str], None] | None,
        upload: bool | Client,
    ) -> None:
        self.dataset = dataset
        self._master = Master(target, patience, on_wait)
        self._path = f"/v1/datasets/{_quote(dataset)}"
        self._upload = upload
        try:
            self._told = self._ask()
        except BaseException:
            self._master.close()
            raise

    def _ask(self) -> _Told:
        layout = self._master.ask("GET", f"{self._path}/layout")["layout"]
        upload = self._uploader(layout)
        return _Told(
            layout["partitions"],
            layout["chunk_bytes"],
            layout["max_chunk_bytes"],
            layout["max_record"],
            layout.get("land_bytes", 0) if upload is None else 0,
            layout["key"],
            upload,
            compress=upload is not None or not self._master.near(),
        )

    def _now(self) -> _Told:
        """How the dataset wants a transaction that begins now. The master is asked again after a call has failed,
        because an old answer may be the reason. Otherwise a writer with a bucket needs no master until its commit."""
        if self._told.doubtful:
            self._told = self._ask()
        return self._told

    def _uploader(self, layout: dict[str, Any]) -> Uploader | None:
        upload = self._upload
        if upload is False:
            return None
        if layout.get("upload") is None:
            raise PushError(
                f"dataset {self.dataset}: its master keeps chunks in its state folder, so only the master can write "
                "them: push without upload, or set landing_storage: s3://... for the master"
            )
        return Uploader(layout["upload"], None if upload is True else upload, time.monotonic())

    def begin(self, transaction: str | None = None) -> Transaction:
        """Starts a transaction. Never use an id (1 to 200 bytes) for other records again;
        None makes one up. Nothing is sent."""
        return Transaction(self, transaction if transaction is not None else f"push-{secrets.token_hex(16)}")

    def landed(self, transaction: str) -> Pushed | None:
        """A transaction as it is visible; None: it is not visible."""
        answer = self._master.ask("GET", self._of(transaction))
        return Pushed(transaction, True, answer["records"]) if answer["already"] else None

    def commit(self, transaction: str, locators: Iterable[str]) -> Pushed:
        """Makes a transaction visible. Any processes may have staged its chunks."""
        named = list(locators)
        body = json.dumps({"locators": named}).encode()
        if len(body) > MOST_COMMIT or len(named) > MOST_CHUNKS:
            raise self._too_many(transaction, len(named))
        return self._commit(transaction, "commit", body)

    def _commit(self, transaction: str, page: str, body: bytes) -> Pushed:
        try:
            answer = self._master.ask("POST", f"{self._of(transaction)}/{page}", body, within=COMMIT_SECONDS)
        except Exception:
            self._doubt()
            raise
        return Pushed(transaction, answer["already"], answer["records"])

    def _land(self, transaction: str, locators: list[str], last: list[tuple[int, bytes, bytes]]) -> Pushed:
        """Stages chunks and commits, in one call. last: partition, header and body of each."""
        text = json.dumps({"locators": locators, "partitions": [part for part, _, _ in last]}).encode()
        chunks = len(locators) + len(last)
        if len(text) > MOST_COMMIT or chunks > MOST_CHUNKS:
            raise self._too_many(transaction, chunks)
        body = b"".join([text, *(head for _, head, _ in last), *(body for _, _, body in last)])
        return self._commit(transaction, f"land?head={len(text)}", body)

    def end(self) -> None:
        """Says that no record follows, from any producer. The spec must allow it (`end: pushed`)."""
        self._master.ask("POST", f"{self._path}/end", b"")

    def close(self) -> None:
        """Ends the connections; a call that waits in another thread raises PushError. Records
        that were not committed never become visible. A commit that waits may become visible."""
        self._master.close()

    def __repr__(self) -> str:
        return f"Pusher({self.dataset!r}, master {self._master.target.where()})"

    def __enter__(self) -> Pusher:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _of(self, transaction: str) -> str:
        if not 1 <= len(transaction.encode()) <= 200:
            raise ValueError(f"a transaction's id has 1 to 200 bytes, and this one has {len(transaction.encode())}")
        return f"{self._path}/transactions/{_quote(transaction)}"

    def _doubt(self) -> None:
        """The next transaction asks the master again: a limit may have been raised since."""
        self._told.doubtful = True

    def _too_many(self, transaction: str, chunks: int) -> PushError:
        self._doubt()
        return PushError(
            f"transaction {transaction!r} has {chunks} chunks, and a commit has at most {MOST_CHUNKS} chunks and "
            f"{MOST_COMMIT >> 20} MiB: make landing.chunk in the spec larger and apply that, or push fewer records in "
            "a transaction"
        )

    def _stage(self, told: _Told, transaction: str, partition: int, chunk: bytes) -> str:
        try:
            if told.upload is not None:
                master = self._master
                return told.upload.stage(transaction, partition, chunk, master.patience, master.tell, master.pause)
            answer = self._master.ask("POST", f"{self._of(transaction)}/chunks?partition={partition}", chunk)
        except Exception:
            self._doubt()
            raise
        locator: str = answer["locators"][0]
        return locator


def _quote(text: str) -> str:
    return quote(text, safe="").replace(".", "%2E")  # a path must not be taken for `..`


class Transaction:
    """Records that become visible together. It is used by one thread.

    In a ``with`` block it is committed at the end of the block, unless an error ends it.

    If a chunk could not be stored (it was refused, or patience was over), the transaction has
    failed: push(), stage() and commit() raise that error from then on. Begin another one with
    the same id, and push all of its records again.
    """

    def __init__(self, pusher: Pusher, name: str) -> None:
        self._pusher = pusher
        self.id = name
        self.records = 0
        self.done: Pushed | None = None  #: the answer to the commit
        pusher._of(name)  # checks the id
        self._told: _Told | None = None  # nothing was pushed yet
        self._builders: list[Builder] = []
        self._rest = first_of(name)  # partition of the records without a key
        self._lock = threading.Condition(threading.Lock())
        self._sending: set[int] = set()  # chunks that are on their way, by place in _locators; guarded by _lock
        self._locators: list[str] = []  # in the order in which chunks were closed
        self._staged = 0  # chunks that are durable; guarded by _lock
        self._body = len(json.dumps({"locators": []}))  # bytes of the commit's body so far; guarded by _lock
        self._failed: Exception | None = None
        self._named = False  # the chunks were named, so a commit may have been made
        self._last: list[tuple[int, bytes, bytes]] = []  # what goes with the commit: partition, header, body

    def push(
        self,
        value: Value,
        *,
        key: bytes | str | None = None,
        time: int = 0,
        headers: Iterable[tuple[str, bytes]] = (),
    ) -> None:
        """Adds a record, and sends a chunk when one is full.

        key: records with the same key stay in order; without one, the field of the spec's
        ``landing.key`` is taken. time: ms since 1970. headers: names and values beside it.

        Raises PushError once stage() or commit() has stored all chunks.
        """
        if self._named:
            raise PushError(
                f"transaction {self.id!r} was staged or committed, so a record that is pushed now might never be "
                "visible: begin another transaction"
            )
        told = self._told
        if told is None:
            told = self._told = self._pusher._now()
            self._builders = [Builder() for _ in range(told.partitions)]
        if type(value) is bytes and key is None and not (time or headers or told.key) and len(value) <= told.max_record:
            self._plain(told, value)  # the short way of most records
            return
        try:
            data = _bytes_of(value)
            if data is not None and len(data) > told.max_record:
                self._pusher._doubt()
                raise ValueError(
                    f"it has {len(data)} bytes, and max_record of dataset {self._pusher.dataset} is {told.max_record}: "
                    "raise it in the spec and apply that"
                )
            key = _key(key)
            if key is None and told.key and data is not None:
                key = key_of(told.key, data)
            time = _time(time)
            fields = _fields(headers)
        except (TypeError, ValueError) as error:
            kind = (
                TypeError if isinstance(error, TypeError) else ValueError
            )  # a UnicodeEncodeError takes other arguments
            raise kind(f"record {self.records} of transaction {self.id!r}: {error}") from None
        if data is not None and key is None and not time and not fields:
            self._plain(told, data)
            return
        part = partition_of(key, len(self._builders), self._rest)
        builder = self._builders[part]
        more = len(data or b"") + len(key or b"") + sum(len(n) + len(v) + 20 for n, v in fields) + 64
        if builder.size + more > told.max_chunk_bytes:
            self._send(part)
            builder = self._builders[part]
        builder.add(key, data, time, fields)
        self.records += 1
        if builder.size >= told.chunk_bytes:
            self._send(part)

    def _plain(self, told: _Told, value: bytes) -> None:
        part = self._rest % told.partitions
        builder = self._builders[part]
        if builder.size + len(value) + 64 > told.max_chunk_bytes:
            self._send(part)
            part = self._rest % told.partitions
            builder = self._builders[part]
        builder.plain(value)
        self.records += 1
        if builder.size >= told.chunk_bytes:
            self._send(part)

    def stage(self) -> list[str]:
        """Sends the remaining records, and waits until all chunks are durable. Any process can
        commit the transaction with the returned locators. Nothing can be pushed after it. After
        an interrupt (KeyboardInterrupt) it can be called again."""
        self._last = []  # the builders are staged from here on, also if that ends in the middle
        for part in range(len(self._builders)):
            self._send(part)
        self._wait(0)
        self._check()
        self._named = True
        return list(self._locators)

    def commit(self) -> Pushed:
        """Stages the rest and makes the transaction visible, in one call of the master if it is not
        too much. After an error of the commit, or an interrupt, it can be called again: the
        records become visible once. After a chunk could not be stored, each call raises that
        error."""
        if self._told is not None and self._in_one_call(self._told):
            try:
                self.done = self._land(self._told)
                return self.done
            except NoPage:
                # A master of an older version is there now. If an earlier try has landed, this master remembers the
                # id as well, and the commit adds nothing.
                pass
        self.done = self._pusher.commit(self.id, self.stage())
        return self.done

    def _in_one_call(self, told: _Told) -> bool:
        """Whether the rest goes with the commit: the master takes that much, and no other chunk is on its way. If one
        is, staging the rest beside it is faster."""
        with self._lock:
            if self._sending and not self._last:
                return False
        return 0 < sum(b.size for b in self._builders) <= told.land_bytes

    def _land(self, told: _Told) -> Pushed:
        """The records stay in their builders, so that stage() can be called after an error."""
        self._wait(0)
        self._check()
        self._named = True
        if not self._last:
            full = [(part, builder) for part, builder in enumerate(self._builders) if builder.records]
            self._last = [(part, *builder.parts(told.compress)) for part, builder in full]
        return self._pusher._land(self.id, self._locators, self._last)

    def __enter__(self) -> Transaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None and self.done is None:
            self.commit()

    def _check(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _wait(self, most: int) -> None:
        """Until at most so many chunks are on their way. An interrupt changes nothing."""
        with self._lock:
            self._lock.wait_for(lambda: len(self._sending) <= most)

    def _send(self, part: int) -> None:
        """Stages the chunk of a partition in the background; waits while too many are on their way."""
        self._check()
        builder, at, told, rest = self._builders[part], len(self._locators), self._told, self._rest
        if not builder.records or told is None:
            return
        self._wait(_STAGING - 1)
        fate: list[str] = []  # what came first, the thread's start or an interrupt; guarded by _lock

        def stage() -> None:
            with self._lock:
                if fate:
                    return
                fate.append("begun")
            try:
                locator = self._pusher._stage(told, self.id, part, builder.seal(told.compress))
                with self._lock:
                    self._locators[at] = locator
                    self._body += len(json.dumps(locator)) + len(", ")
                    self._staged += 1
                    if (self._body > MOST_COMMIT or self._staged > MOST_CHUNKS) and self._failed is None:
                        self._failed = self._pusher._too_many(self.id, self._staged)
            except Exception as error:
                self._failed = self._failed or error
            finally:
                with self._lock:
                    self._sending.discard(at)
                    self._lock.notify_all()

        try:
            with self._lock:
                self._sending.add(at)
            self._builders[part] = Builder()
            self._rest += 1
            self._locators.append("")
            # A daemon: a program that gives up must be able to end while the master is away.
            threading.Thread(target=stage, name=f"headrace-stage-{at}", daemon=True).start()
        except BaseException:  # an interrupt, or no thread can be started
            with self._lock:
                if not fate:  # as if nothing had happened
                    fate.append("given up")
                    self._sending.discard(at)
                    self._builders[part], self._rest = builder, rest
                    del self._locators[at:]
            raise


def _bytes_of(value: Value) -> bytes | None:
    if isinstance(value, bytes) or value is None:
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    if not isinstance(value, (Mapping, list, tuple)):
        raise TypeError(f"it is a {type(value).__name__}, and a record is bytes, str, a dict, a list or None")
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_plain)
    return text.encode()


def _key(key: object) -> bytes | None:
    if isinstance(key, str):
        return key.encode()
    if key is None or isinstance(key, (bytes, bytearray, memoryview)):
        return None if key is None else bytes(key)
    raise TypeError(f"its key is a {type(key).__name__}, and a key is bytes or str")


def _time(time: Any) -> int:
    try:
        ms = index(time)
    except TypeError:
        raise TypeError(f"time={time!r}; it is a whole number of ms since 1970") from None
    if not -(1 << 63) <= ms < 1 << 63:
        raise ValueError(f"time={time!r}; it is a number of ms since 1970, of at most 63 bits")
    return ms


def _fields(headers: Iterable[tuple[str, bytes]]) -> list[Header]:
    fields = []
    for name, value in headers:
        if not isinstance(name, str) or not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"its header {name!r} is a {type(value).__name__}: a name is str, and a value is bytes")
        name.encode()  # raises ValueError
        fields.append((name, bytes(value)))
    return fields


def _plain(value: object) -> Any:
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return str(value)
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (datetime.date, datetime.time)):
        return value.isoformat()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a {type(value).__name__} is not JSON")
