"""Checkpoints in a bucket of S3 (docs/CHECKPOINTS.md, In a bucket).

The agent has the S3 client and the credentials, and this process asks it. Both share a
memory folder. A save writes the state there, and the agent uploads it. For a restore the
agent downloads the files into it, and this process maps them.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _cut, _cuts, _manifest, _slots
from ._errors import CheckpointError
from ._manifest import Manifest
from ._memory import ROOM

if TYPE_CHECKING:
    from ._trainer import Trainer

SCHEME = "s3://"
PATIENCE = 120.0  # for a listing, or a removal
_NAMES = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-")


def is_url(path: str) -> bool:
    return "://" in path


def check(url: str) -> str:
    """Without a slash at the end. Raises ValueError."""
    rest = url[len(SCHEME) :]
    bucket, _, prefix = rest.strip("/").partition("/")
    if not url.startswith(SCHEME) or not 3 <= len(bucket) <= 63 or set(bucket) - _NAMES:
        raise ValueError(f"{url}: checkpoints lie in a folder, or in a bucket as s3://BUCKET/PREFIX")
    if any(part in ("", ".", "..") for part in prefix.split("/") if prefix):
        raise ValueError(f"{url}: a prefix has no empty part, no . and no ..")
    return SCHEME + rest.strip("/")


@dataclass(frozen=True)
class Stored(Manifest):
    """A manifest in a bucket. local: a copy of it on this machine."""

    local: str = ""
    bucket: Any = None

    @property
    def pinned(self) -> bool:
        return os.path.lexists(self.local + ".pinned")

    def fault(self) -> str | None:
        """None: the files are as the manifest says. The files that this rank needs are then on
        this machine, until drop()."""
        if wrong := _cut.wrong_inside(self.cut):
            return f"{self.path}: cut.{wrong}"
        try:
            self.bucket.fetch(self, self.bucket.rank)
        except CheckpointError as error:
            return str(error)
        return None


class Bucket:
    """A folder of checkpoints in a bucket, as a path."""

    def __init__(self, trainer: Trainer, url: str) -> None:
        """Raises CheckpointError: it cannot be reached, or not with these credentials."""
        self.url = url
        self._trainer = trainer
        self.rank = trainer.rank
        answer = self._ask("id", url, "the folder of checkpoints")
        self.slots = _slots.Folder(url, trainer.job, answer.cut)
        self._mirror = os.path.join(self.slots.path, f"mirror-rank-{trainer.rank}")
        self._fetched: dict[tuple[str, int], str] = {}  # folders on this machine, by cut and rank
        _own(self._mirror)
        shutil.rmtree(self._near, ignore_errors=True)  # of a process that was killed

    def __fspath__(self) -> str:
        return self.url

    __str__ = __fspath__

    @property
    def _near(self) -> str:
        return os.path.join(self.slots.path, f"fetched-rank-{self._trainer.rank}")

    def _ask(self, mode: str, path: str, what: str, timeout: float = PATIENCE, **more: Any) -> Any:
        fields = {"call": "stored", "mode": mode, "path": path, **more}
        answer = _cuts.wait(self._trainer, fields, time.monotonic() + timeout, what)
        if answer.code != "ok":
            raise CheckpointError(f"{what}: {answer.reason or answer.code}")  # the reason names the object
        return answer

    def _list(self) -> None:
        self._ask("list", self.url, "listing checkpoints", into=self._mirror)

    def find(self, bad: list[str] | None = None, unread: list[Exception] | None = None) -> list[Manifest]:
        """Does what _manifest.find() does, in the bucket."""
        self._list()
        wrong: list[str] = []
        found = _manifest.find(self._mirror, wrong, unread)
        if bad is not None:
            bad += [why.replace(self._mirror, self.url) for why in wrong]
        return [self._stored(m.path, m.fields) for m in found]

    def _stored(self, local: str, fields: dict[str, Any]) -> Stored:
        return Stored(path=self.url + local[len(self._mirror) :], fields=fields, local=local, bucket=self)

    def load(self, path: str) -> Stored:
        """The manifest at a path of this folder. Raises CheckpointError."""
        if not path.startswith(self.url + "/"):
            raise CheckpointError(f"{path} does not lie in {self.url}")
        self._list()
        local = self._mirror + path[len(self.url) :]
        try:
            return self._stored(local, _manifest.load(local).fields)
        except FileNotFoundError:
            raise CheckpointError(f"{path}: it is not there") from None

    def exists(self, path: str) -> bool:
        self._list()
        return os.path.exists(self._mirror + path[len(self.url) :])

    def fetch(self, manifest: Stored, rank: int) -> str:
        """The files of a checkpoint, as its manifest says, in a folder of this machine; of a
        sharded one the part of a rank. The files of other ranks are compared in the bucket.
        Raises CheckpointError."""
        known = self._fetched.get((manifest.cut_id, rank))
        if known is not None:
            return known
        need = sum(int(f["size"]) for f in manifest.files if f.get("rank") in (None, rank))
        folder = self._room_for(need, f"{manifest.cut_id}-{rank}")
        try:
            more = {"into": folder, "from": rank}
            self._ask("fetch", manifest.path, "reading a checkpoint", _cuts.RESTORE_SECONDS, **more)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._fetched[manifest.cut_id, rank] = folder
        return folder

    def _room_for(self, need: int, name: str) -> str:
        """A folder in memory; on a disk if there is too little memory."""
        space = os.statvfs(self.slots.path)
        if space.f_bavail * space.f_frsize < need + ROOM:
            return tempfile.mkdtemp(prefix="headrace-")
        _own(self._near)
        folder = os.path.join(self._near, name)
        _own(folder)
        return folder

    def drop(self) -> None:
        """Removes the files that fetch() has downloaded. Arrays that are mapped from them stay valid."""
        for folder in self._fetched.values():
            shutil.rmtree(folder, ignore_errors=True)
        self._fetched.clear()
        shutil.rmtree(self._near, ignore_errors=True)

    def begin(self, manifest: Manifest) -> None:
        """Does what _remove.begin() does, in the bucket."""
        self._ask("begin", manifest.path, "removing a checkpoint")

    def cancel(self, manifest: Manifest) -> None:
        self._ask("cancel", manifest.path, "keeping a checkpoint")

    def remove(self, manifest: Manifest) -> None:
        """The manifest first, then the rest. Raises CheckpointError."""
        self._ask("remove", manifest.path, "removing a checkpoint")

    def sweep(self, newest: str, patience: float) -> None:
        """Removes leftovers of killed saves that have not changed for that long.
        newest: a manifest that was just written."""
        self._ask("sweep", newest, "removing leftovers of killed saves", deadline_ms=int(patience * 1000))


def _own(folder: str) -> None:
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder, 0o700)
