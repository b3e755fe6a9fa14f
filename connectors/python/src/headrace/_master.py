"""The master, for processes that push: where it is, the proof, requests.

HTTP/1.1 on the master's own port, after the proof that both sides know the token
(docs/PROTOCOL.md, The proof). Without TLS the token is never sent. With TLS the caller's
certificate counts, and a token is sent inside the TLS session.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import ipaddress
import json
import logging
import os
import queue
import socket
import ssl
import stat
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ._errors import DatasetError, MasterUnavailable, PushError
from ._settings import job_of_folder

log = logging.getLogger("headrace")

DEFAULT = "127.0.0.1:7070"
_MAGIC, _NONCE, _PROOF = b"HEADRAC1", 32, 32
_ANSWER_SECONDS = 60.0  # a master that is silent for so long is asked again
# A commit looks at each of its chunks, so it may take long. A try that is cut off begins anew at the master and may
# never end. Meanwhile TCP's probes tell whether the master's machine is there: once it has the request, it is taken
# for gone after 25 s. Before that, TCP sends the request again, on Linux for about 15 minutes. TCP_USER_TIMEOUT would
# make that shorter, but it also ends a connection whose other side has no room for more: a chunk that waits at the
# master for memory would be cut off and sent again.
COMMIT_SECONDS = 3600.0
_PROBES = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
_PIECE = 256 << 10  # bytes of a body that leave together
_PROOF_SECONDS = 5.0
_CLOSED = "the pusher was closed"
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 2.0
_QUIET_SECONDS = 2.0  # then a wait is told
_TOLD_SECONDS = 10.0  # and told again


class _Refused(Exception):
    """The master does not accept this caller: trying again does not help."""


class NoPage(PushError):
    """The master has no such page: it is of an older version."""


class _Later(Exception):
    """Try again, after so many seconds."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True)
class Target:
    """The address of a master, and the token and certificates to show it. It can be pickled."""

    address: str | None  # None: what the state folder says
    state: str
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    tls: tuple[str, str, str] | None = None  # certificate, key, CA

    @staticmethod
    def find(
        job: str | None = None,
        master: str | None = None,
        token: str | None = None,
        token_file: str | None = None,
        env: Mapping[str, str] | None = None,
    ) -> Target:
        """Arguments, else HEADRACE_*, else the state folder, as the tools do it. If the address
        and the token are given, ./headrace.yaml is not read."""
        env = os.environ if env is None else env
        address = master or env.get("HEADRACE_MASTER") or None
        if token is None and token_file is None:
            token, token_file = env.get("HEADRACE_TOKEN") or None, env.get("HEADRACE_TOKEN_FILE") or None
        base = env.get("XDG_STATE_HOME") or os.path.join(env.get("HOME", "/"), ".local", "state")
        job = job or env.get("HEADRACE_JOB")
        if not job and not env.get("HEADRACE_STATE") and not (address and (token or token_file)):
            job = job_of_folder()
        state = env.get("HEADRACE_STATE") or os.path.join(base, "headrace", job or "default")
        files = [env.get(f"HEADRACE_TLS_{part}", "") for part in ("CERT", "KEY", "CA")]
        if any(files) and not all(files):
            raise ValueError("TLS needs all three of HEADRACE_TLS_CERT, HEADRACE_TLS_KEY and HEADRACE_TLS_CA")
        target = Target(
            address=address,
            state=os.path.abspath(state),
            token=token,
            token_file=token_file,
            tls=(files[0], files[1], files[2]) if all(files) else None,
        )
        if target.address is not None:
            host, _ = _split(target.address)
            if target.tls is None and not _loopback(host):
                raise ValueError(
                    f"master {target.address} is on another machine, and nothing would prove who it is: "
                    "set HEADRACE_TLS_CERT, HEADRACE_TLS_KEY and HEADRACE_TLS_CA"
                )
        return target

    def where(self) -> str:
        """The address. It is read again for each connection: a master may come back on another port."""
        if self.address is not None:
            return self.address
        try:
            return (Path(self.state) / "master.addr").read_text().strip() or DEFAULT
        except FileNotFoundError:
            return DEFAULT

    def secret(self) -> str:
        """The token, "" if there is none. A master that starts for the first time makes it."""
        if self.token:
            return self.token
        if self.token_file:
            return _token_of(Path(self.token_file))
        path = Path(self.state) / "token"
        try:
            info = path.stat()
            if stat.S_IMODE(info.st_mode) & 0o077:
                raise PushError(f"token {path} can be read by other users: remove it, and the master makes a new one")
            if info.st_uid not in (0, os.getuid()) and os.getuid() != 0:
                raise PushError(f"token {path} belongs to uid {info.st_uid}, not to us ({os.getuid()})")
            return _token_of(path)
        except (FileNotFoundError, PermissionError):
            return ""  # the master says where it lies


def _token_of(path: Path) -> str:
    for line in path.read_text().splitlines():
        if line.strip():
            return line.strip()
    raise PushError(f"token {path} is empty")


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{address!r} is not host:port, as in {DEFAULT}")
    return host.strip("[]"), int(port)


def _loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Connection(http.client.HTTPConnection):
    """One that proves the token when it connects."""

    def __init__(self, target: Target) -> None:
        self.target = target
        host, port = _split(target.where())
        if target.tls is None and not _loopback(host):
            raise PushError(f"{target.state}/master.addr names {host}:{port}, which is not on this machine")
        super().__init__(host, port, timeout=_ANSWER_SECONDS)
        self.proof_seconds = _PROOF_SECONDS
        self._raw: socket.socket | None = None  # from the first byte on

    def connect(self) -> None:
        raw = self._raw = socket.create_connection((self.host, self.port), timeout=self.proof_seconds)
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _PROBES.items():
                if hasattr(socket, name):
                    raw.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            if self.target.tls is not None:
                certificate, key, authority = self.target.tls
                context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=authority)
                context.minimum_version = ssl.TLSVersion.TLSv1_3
                context.load_cert_chain(certificate, key)
                raw = self._raw = context.wrap_socket(raw, server_hostname=self.host)
            else:
                _prove(raw, self.target.secret())
            raw.settimeout(_ANSWER_SECONDS)
        except BaseException:
            raw.close()
            raise
        self.sock = raw

    def cut(self) -> None:
        """Ends the connection, also while another thread waits at it."""
        raw = self._raw
        if raw is not None:
            with contextlib.suppress(OSError):  # it has ended
                socket.socket.shutdown(raw, socket.SHUT_RDWR)


def _prove(sock: socket.socket, token: str) -> None:
    ident = _mac(b"headrace token id", token.encode())[:16] if token else bytes(16)
    nonce = os.urandom(_NONCE)
    sock.sendall(_MAGIC + ident + nonce)
    if _exactly(sock, 1) != b"\0":
        size = int.from_bytes(_exactly(sock, 2), "big")
        said = _exactly(sock, min(size, 1024)).decode("utf-8", "replace")
        # It comes from a process that has proven nothing: only print what can be printed.
        raise _Refused("".join(c for c in said if c.isprintable()))
    masters, proof = _exactly(sock, _NONCE), _exactly(sock, _PROOF)
    host, port = sock.getpeername()[:2]
    binding = f"tcp [{host}]:{port}" if ":" in host else f"tcp {host}:{port}"

    def of(side: str) -> bytes:
        return _mac(token.encode(), f"headrace {side}\0{binding}\0".encode() + ident + nonce + masters)

    if not token or not hmac.compare_digest(proof, of("master")):
        raise ConnectionError(f"the process at {host}:{port} does not know our token, so nothing was sent to it")
    sock.sendall(of("client"))


def _mac(key: bytes, text: bytes) -> bytes:
    return hmac.new(key, text, hashlib.sha256).digest()


def _exactly(sock: socket.socket, size: int) -> bytes:
    got = b""
    while len(got) < size:
        more = sock.recv(size - len(got))
        if not more:
            raise ConnectionError(
                "it ended the connection without a proof: does it want TLS, or is it another process?"
            )
        got += more
    return got


class Master:
    """Asks until there is an answer. It may be used by several threads."""

    def __init__(
        self, target: Target, patience: float | None = None, on_wait: Callable[[str], None] | None = None
    ) -> None:
        self.target, self.patience = target, patience
        self._on_wait = on_wait
        self._idle: queue.LifoQueue[_Connection] = queue.LifoQueue()
        self._busy: set[_Connection] = set()
        self._lock = threading.Lock()  # guards _busy
        self._pid = os.getpid()
        self._closed = threading.Event()
        self._waits = _Waits()

    def near(self) -> bool:
        """The master is on this machine."""
        return _loopback(_split(self.target.where())[0])

    def ask(self, method: str, path: str, body: bytes | None = None, within: float = _ANSWER_SECONDS) -> dict[str, Any]:
        """The answer's JSON. It waits and asks again while the master is away or answers
        "later", and also if there is no answer within so many seconds.

        Raises DatasetError, PushError, and MasterUnavailable after `patience` seconds, also if
        the master has not answered by then. With patience=0 it asks once, and waits `within`.
        """
        began, wait = time.monotonic(), _FIRST_WAIT
        until = began + self.patience if self.patience else None
        reason = ""
        while True:
            if self._closed.is_set():
                raise PushError(_CLOSED)
            try:
                return self._once(method, path, body, within, until)
            except _Refused as error:
                raise PushError(f"the master at {self.target.where()} does not accept this process: {error}") from None
            except _Later as error:
                reason, after = str(error), error.after
            except (OSError, http.client.HTTPException) as error:
                after = None
                over = until is not None and time.monotonic() >= until
                if not (over and reason and isinstance(error, socket.timeout)):
                    reason = f"master {self.target.where()}: {error or type(error).__name__}"
                # else patience cut this try short, and the reason is the one before
            if self._closed.is_set():
                continue
            pause = wait if after is None else after
            wait = min(2 * wait, _LONGEST_WAIT)
            if self.patience is not None and time.monotonic() + pause - began > self.patience:
                raise MasterUnavailable(f"no answer within {self.patience:g} s: {reason}")
            self.tell(reason)
            self._closed.wait(pause)

    def tell(self, reason: str) -> None:
        """Tells why the request waits."""
        self._waits.tell(reason)
        if self._on_wait is not None:
            self._on_wait(reason)

    def pause(self, seconds: float) -> None:
        """Waits before another try. Raises PushError once the pusher is closed."""
        if self._closed.wait(seconds):
            raise PushError(_CLOSED)

    def _once(self, method: str, path: str, body: bytes | None, within: float, until: float | None) -> dict[str, Any]:
        connection = self._take()
        try:
            headers = {"Content-Type": "application/octet-stream"}
            if self.target.tls is not None and (token := self.target.secret()):
                headers["Authorization"] = f"Bearer {token}"  # to a process whose certificate was verified
            if connection.sock is None:
                connection.proof_seconds = _left(_PROOF_SECONDS, until)
                connection.connect()
            if self._closed.is_set():
                raise PushError(_CLOSED)  # close() may not have seen this connection
            connection.sock.settimeout(_left(_ANSWER_SECONDS, until))
            if body is None or len(body) <= _PIECE:
                connection.request(method, path, body, headers)
            else:
                headers["Content-Length"] = str(len(body))
                connection.request(method, path, _pieces(connection.sock, body, until), headers)
            connection.sock.settimeout(_left(within, until))
            reply = connection.getresponse()
            text = reply.read()
        except BaseException:
            connection.close()
            raise
        finally:
            with self._lock:
                self._busy.discard(connection)
        if reply.will_close:
            connection.close()
        else:
            connection.sock.settimeout(_ANSWER_SECONDS)
            self._idle.put(connection)
            if self._closed.is_set():
                self.close()  # it has not seen this connection
        return _answer(reply, text)

    def _take(self) -> _Connection:
        if self._pid != os.getpid():  # a fork must not use its parent's connections
            self._idle, self._busy, self._lock, self._pid = queue.LifoQueue(), set(), threading.Lock(), os.getpid()
        connection = self._open()
        with self._lock:
            self._busy.add(connection)
        return connection

    def _open(self) -> _Connection:
        while True:
            try:
                connection = self._idle.get_nowait()
            except queue.Empty:
                return _Connection(self.target)
            if connection.sock is not None and not _ended(connection.sock):
                return connection
            connection.close()

    def close(self) -> None:
        """Ends the connections, also those in use: a request that waits raises PushError. A
        commit that the master has begun may still become visible."""
        self._closed.set()
        if self._pid == os.getpid():
            with self._lock:
                for connection in self._busy:
                    connection.cut()
            while True:
                try:
                    self._idle.get_nowait().close()
                except queue.Empty:
                    return


def _pieces(sock: socket.socket, body: bytes, until: float | None) -> Iterator[memoryview]:
    """Cuts a body into pieces, each with its own time to leave, so that a slow link makes
    progress: a socket's timeout covers everything that one sendall() sends."""
    whole = memoryview(body)
    for at in range(0, len(body), _PIECE):
        sock.settimeout(_left(_ANSWER_SECONDS, until))
        yield whole[at : at + _PIECE]


def _left(within: float, until: float | None) -> float:
    """`within` seconds, or fewer if `until` comes before. Never 0: to a socket that means not to wait."""
    return within if until is None else max(0.001, min(within, until - time.monotonic()))


def _ended(sock: socket.socket) -> bool:
    """Whether the other side has closed it while nobody looked."""
    if isinstance(sock, ssl.SSLSocket):
        return False  # the request tells
    sock.setblocking(False)
    try:
        return sock.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        sock.settimeout(_ANSWER_SECONDS)


def _answer(reply: http.client.HTTPResponse, text: bytes) -> dict[str, Any]:
    try:
        answer = json.loads(text)
        error = answer.get("error", "") if isinstance(answer, dict) else ""
    except ValueError:
        answer, error = None, text.decode("utf-8", "replace").strip()
    if reply.status == 200 and isinstance(answer, dict):
        return answer
    why = f"{error or reply.reason} ({reply.status})" if reply.status >= 500 or not error else error
    if reply.status in (429, 503):
        after = reply.headers.get("Retry-After", "")
        raise _Later(why, float(after) if reply.status == 429 and after.isdigit() else None)
    if reply.status == 404 and answer is not None:
        raise DatasetError(why)
    if reply.status == 404:
        raise NoPage(f"the master has no such page: it is of an older version ({why})")
    raise PushError(why)


class _Waits:
    """Logs why a request waits: after two seconds, and then every ten."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since = self._last = -1e9
        self._told = False

    def tell(self, reason: str) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self._last > _TOLD_SECONDS:
                self._since, self._told = now, False
            self._last = now
            if now - self._since < (_TOLD_SECONDS if self._told else _QUIET_SECONDS):
                return
            self._since, self._told = now, True
        log.warning("the records are not taken yet; trying again: %s", reason)
