"""If another user of the machine listens at the agent's socket, nothing is sent to them."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import headrace
import pytest
from headrace import _wire

NOBODY = 65534


@pytest.fixture
def sticky() -> Iterator[Path]:
    """A folder that everybody may write to, as /tmp is."""
    folder = Path(tempfile.mkdtemp(prefix="hr"))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


def listen_as_nobody(path: Path) -> socket.socket:
    """Needs root: a socket that the user nobody has made and listens on. The kernel remembers which
    user called listen()."""
    listener = socket.socket(socket.AF_UNIX)
    failed: list[BaseException] = []

    def listen() -> None:
        # Changes the user of this thread only: to the kernel, each thread has its own user.
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        setresuid = {"x86_64": 117, "aarch64": 147}[os.uname().machine]
        try:
            if libc.syscall(setresuid, -1, NOBODY, -1) != 0:
                raise OSError(ctypes.get_errno(), "setresuid")
            listener.bind(str(path))
            listener.listen()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=listen)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return listener


def test_hello_is_not_sent_to_another_users_process(sticky: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sticky / "a.sock"
    if os.getuid() == 0:
        listener = listen_as_nobody(path)
        assert path.stat().st_uid == NOBODY
    else:  # without root: the listener is ours, and the test says that we are another user
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()
        other = os.getuid() + 1
        owned = os.stat(sticky)
        monkeypatch.setattr(os, "getuid", lambda: other)
        monkeypatch.setattr(os, "stat", lambda _: os.stat_result((owned.st_mode, 0, 0, 1, 0, 0, 0, 0, 0, 0)))
    heard: list[bytes] = []

    def take() -> None:
        connection, _ = listener.accept()
        with connection:
            heard.append(connection.recv(1 << 16))

    thread = threading.Thread(target=take)
    thread.start()
    with listener:
        with pytest.raises(headrace.AgentUnavailable, match=r"a process of uid \d+ listens at .*nothing was sent"):
            headrace.init(agent=str(path))
        thread.join()
    assert heard == [b""]


def test_a_folder_that_others_can_write_is_refused(sticky: Path) -> None:
    sticky.chmod(0o777)
    with pytest.raises(headrace.AgentUnavailable, match=r"can be written by others \(mode 0777\).*chmod 700"):
        headrace.init(agent=str(sticky / "a.sock"))


def test_a_folder_of_another_user_is_refused(sticky: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if os.getuid() == 0:
        sticky.chmod(0o755)
        os.chown(sticky, NOBODY, NOBODY)
    else:
        foreign = os.stat_result((stat.S_IFDIR | 0o755, 0, 0, 1, NOBODY, NOBODY, 0, 0, 0, 0))
        monkeypatch.setattr(os, "stat", lambda _: foreign)
    with pytest.raises(headrace.AgentUnavailable, match=f"belongs to uid {NOBODY}, not to us"):
        _wire.connect(str(sticky / "a.sock"))
