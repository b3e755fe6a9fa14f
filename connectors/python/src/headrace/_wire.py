"""One control connection that never blocks its thread."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import stat
import struct

from . import _messages as wire
from ._errors import AgentUnavailable
from ._messages import Message

_CHUNK = 1 << 16


def connect(path: str) -> socket.socket:
    """A connection to an agent's socket, in blocking mode. Raises OSError, among them
    AgentUnavailable if another user could have put the socket there, or listens on it."""
    check_folder(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(5)  # a full backlog blocks
        sock.connect(path)
        sock.settimeout(None)
        check_peer(sock, path)
    except BaseException:
        sock.close()
        raise
    return sock


def check_folder(path: str) -> None:
    """Raises AgentUnavailable if users other than us and root may put a socket at path. In
    a sticky folder, as /tmp is, they may; check_peer() then says whose it is."""
    folder = os.path.dirname(path) or "."
    try:
        found = os.stat(folder)
    except OSError:
        return  # connecting says what is wrong
    ours = (0, os.getuid())
    if found.st_uid not in ours:
        raise AgentUnavailable(
            f"the folder of the agent's socket, {folder}, belongs to uid {found.st_uid}, not to us ({os.getuid()}): "
            "another user could listen there; choose a folder of your own with HEADRACE_AGENT and the agent's --socket"
        )
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise AgentUnavailable(
            f"the folder of the agent's socket, {folder}, can be written by others "
            f"(mode {found.st_mode & 0o7777:04o}): another user could listen there; "
            "chmod 700 it, or choose another with HEADRACE_AGENT and the agent's --socket"
        )


def check_peer(sock: socket.socket, path: str) -> None:
    """Raises AgentUnavailable if the process that listens is another user's. Root's may
    listen: it could read our memory anyway."""
    if not hasattr(socket, "SO_PEERCRED"):
        return  # not Linux
    cred = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    _, uid, _ = struct.unpack("3i", cred)
    if uid not in (0, os.getuid()):
        raise AgentUnavailable(
            f"a process of uid {uid} listens at {path}, and not an agent of ours ({os.getuid()}): "
            "nothing was sent to it; run trainer and agent as the same user, "
            "or name the agent's socket with HEADRACE_AGENT"
        )


class ControlConnection:
    """Messages in, bytes out. Raises OSError or EOFError when it is broken."""

    def __init__(self, path: str) -> None:
        self.sock = connect(path)
        self.sock.setblocking(False)
        self._in = bytearray()
        self._out = bytearray()
        self._sent: list[int] = []  # of _out, by one send() each

    @property
    def pending(self) -> bool:
        """Bytes are left to send."""
        return len(self._out) > sum(self._sent)

    def send(self, data: bytes) -> None:
        """Leaves data for the next flush()."""
        self._out += data

    def send_now(self, data: bytes) -> None:
        """Sends data if nothing waits before it; what the socket does not take is
        left for flush(). Raises no OSError: the next receive() tells.

        A signal's exception may come after any line: the count is stored by C code,
        as in _receive.py, so that no byte is sent twice or left out.
        """
        now = not self.pending
        self._out += data
        if now:
            with contextlib.suppress(OSError):  # BlockingIOError too
                self._sent.extend(map(self.sock.send, (data,)))

    def flush(self) -> None:
        """Only the control thread calls it, which no signal interrupts."""
        del self._out[: sum(self._sent)]
        self._sent.clear()
        while self._out:
            try:
                sent = self.sock.send(self._out)
            except BlockingIOError:
                return
            del self._out[:sent]

    def receive(self) -> list[Message]:
        """All messages that have come. Raises ProtocolError too."""
        closed = False
        while True:
            try:
                data = self.sock.recv(_CHUNK)
            except BlockingIOError:
                break
            except ConnectionError:  # what came before is still worth hearing
                data = b""
            if not data:
                closed = True
                break
            self._in += data
            if len(data) < _CHUNK:
                break
        messages = self._parse()
        if closed and not messages:
            raise EOFError("the agent closed the control connection")
        return messages

    def _parse(self) -> list[Message]:
        whole: list[tuple[wire.Header, int]] = []  # header, end of the payload
        at, size = 0, wire.HEADER.size
        while len(self._in) - at >= size:
            header = wire.parse_header(self._in[at : at + size])
            end = at + size + header.length
            if len(self._in) < end:
                break
            if header.type == wire.ACKED and whole and whole[-1][0][1:3] == header[1:3]:
                whole.pop()  # ACKED counts through: of a run of them only the last matters
            whole.append((header, end))
            at = end
        messages = [
            Message(header.type, header.stream, wire.decode(header.type, self._in[end - header.length : end]))
            for header, end in whole
        ]
        del self._in[:at]
        return messages

    def finish(self, seconds: float) -> None:
        """Sends the last bytes and waits until the other side has closed. If we closed first,
        the other side's answer to an earlier message could fail, and it would miss the last
        message. Raises EOFError when all is well."""
        self.flush()
        self.sock.settimeout(seconds)
        self.sock.sendall(self._out)
        self.sock.shutdown(socket.SHUT_WR)
        while self.sock.recv(_CHUNK):
            pass
        raise EOFError

    def close(self) -> None:
        self.sock.close()


class Bell:
    """Wakes the control thread from another thread. Never blocks."""

    def __init__(self) -> None:
        self._read, self._write = os.pipe()
        os.set_blocking(self._read, False)
        os.set_blocking(self._write, False)

    def ring(self) -> None:
        with contextlib.suppress(OSError):  # full: it is ringing already; closed: nobody is there
            os.write(self._write, b"\0")

    def wait(self, sock: socket.socket | None, sending: bool, seconds: float) -> None:
        """Returns on a ring, when sock can be read (or written, if sending), or in time."""
        if self._read < 0:
            return
        poll = select.poll()
        poll.register(self._read, select.POLLIN)
        if sock is not None:
            poll.register(sock, select.POLLIN | (select.POLLOUT if sending else 0))
        poll.poll(max(0.0, seconds) * 1000)
        with contextlib.suppress(BlockingIOError):
            os.read(self._read, 4096)

    def close(self) -> None:
        """From now on a ring does nothing: the descriptors may be those of other files soon."""
        ends = self._read, self._write
        self._read = self._write = -1
        for fd in ends:
            with contextlib.suppress(OSError):
                os.close(fd)
