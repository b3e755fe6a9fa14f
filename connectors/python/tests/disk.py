"""A disk that forgets what was not synced when its power fails.

It stands between the program and the real files. Before each call that changes a
name or syncs, it shows what the disk would hold if the power failed now: once
without anything unsynced, and a few times with a random part of it. Writes go to the
real file at once, but only fsync makes them last.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

CALLS = ("fsync", "mkdir", "rename", "unlink", "rmdir")
TRIES = 4

Inode = bytes | dict[str, int]  # a file's bytes, or a folder's names


class Disk:
    """The disk below the folder `root`. look(when, path) is called for each power failure: path holds
    what the disk would hold then."""

    def __init__(self, root: Path, shows: Path, rng: random.Random, look: Callable[[str, Path], None]) -> None:
        self.root, self.shows, self.rng, self.look = root, shows, rng, look
        self.faults: list[str] = []
        self.crashes = 0
        self._synced: dict[int, Inode] = {}
        self._held: dict[int, int] = {}  # a descriptor of each inode seen, so that no new file gets its number
        self._real: dict[str, Callable[..., Any]] = {}
        self._lock = threading.RLock()
        self._busy = False

    def __enter__(self) -> Disk:
        self._synced = self._scan()
        for name in CALLS:
            self._real[name] = getattr(os, name)
            setattr(os, name, self._watched(name))
        return self

    def __exit__(self, *_: object) -> None:
        self.power_fails("after the last call")
        for name, real in self._real.items():
            setattr(os, name, real)
        for fd in self._held.values():
            os.close(fd)
        assert not self.faults, "\n".join(self.faults)

    def _watched(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            with self._lock:
                if self._busy:
                    return self._real[name](*args, **more)
                self.power_fails(f"before {name} {self._name(args[0])}")
                if name != "fsync":
                    return self._real[name](*args, **more)
                self._sync(args[0])
                return None

        return call

    def _name(self, what: Any) -> str:
        return os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else os.fspath(what)

    def _sync(self, fd: int) -> None:
        inode = os.fstat(fd).st_ino
        now = self._scan()
        if inode in now and self._name(fd).startswith(str(self.root)):
            self._synced[inode] = now[inode]

    def power_fails(self, when: str) -> None:
        with self._lock:
            self._busy = True
            now = self._scan()
            for n in range(TRIES):
                self.crashes += 1
                kept = 0.0 if n == 0 else self.rng.uniform(0.1, 1)
                left = self.shows / str(self.crashes)
                self._write(os.stat(self.root).st_ino, left, now, kept)
                try:
                    self.look(when, left)
                except Exception as fault:
                    self.faults.append(f"power failed {when}, {kept:.0%} of the unsynced kept: {fault!r}")
            self._busy = False

    def _scan(self) -> dict[int, Inode]:
        now: dict[int, Inode] = {}
        for top, folders, files in os.walk(self.root):
            names = {name: os.lstat(os.path.join(top, name)).st_ino for name in folders + files}
            now[self._hold(top)] = names
            for name in files:
                path = os.path.join(top, name)
                now[self._hold(path)] = Path(path).read_bytes()
        return now

    def _hold(self, path: str) -> int:
        inode = os.lstat(path).st_ino
        if inode not in self._held:
            self._held[inode] = os.open(path, os.O_PATH)
        return inode

    def _write(self, inode: int, to: Path, now: dict[int, Inode], kept: float) -> None:
        """Writes one inode to `to` as the disk has it: each unsynced change is kept with probability `kept`."""
        current, synced = now.get(inode), self._synced.get(inode)
        if isinstance(current, dict) or (current is None and isinstance(synced, dict)):
            to.mkdir(parents=True)
            old, new = synced if isinstance(synced, dict) else {}, current or {}
            for name in sorted(old.keys() | new.keys()):
                entry = new.get(name) if self.rng.random() < kept else old.get(name)
                if entry is not None:
                    self._write(entry, to / name, now, kept)
            return
        content = synced if isinstance(synced, bytes) else b""
        if current is not None and current != content and self.rng.random() < kept:
            content = current[: self.rng.randint(0, len(current))] if self.rng.random() < 0.5 else current
        to.write_bytes(content)
