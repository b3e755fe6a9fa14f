"""A checkpoint on storage: its folder, its files and the manifest that makes it one.

docs/CHECKPOINTS.md is the format; the Go package flashckpt/manifest reads and writes the
same. _cut.py has the rules of a cut: load() checks its head, verify() all of it.
"""

from __future__ import annotations

import importlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from . import _cut
from ._errors import CheckpointError

FILE_NAME = "headrace-manifest.json"
FORMAT = "headrace-checkpoint"
PART_FORMAT = "headrace-checkpoint-part"
VERSION = 1
MAX_BYTES = 256 << 20
MAX_FILES = 1 << 20
MODELS = _cut.MODELS

_SUM = re.compile(rb',"crc64nvme":"([0-9a-f]{16})"\}\n\Z')
_SUM_BYTES = 34
_HEX = re.compile(r"[0-9a-f]{16}\Z")
_FOLDER = re.compile(r"step-[0-9]{10,19}(-rank-[0-9]{1,10})?-[0-9a-f]{16}\Z")
_PART = re.compile(r"part-[0-9]+\.json\Z")
_CHUNK = 4 << 20
_crc64: Any = None


class Damaged(CheckpointError):
    """A manifest, a part or a file that does not count: the message names it and the reason."""


class Newer(CheckpointError):
    """A newer version wrote it. It may be good, and nothing of it is touched. `needs` has the
    same meaning in every version; None: it cannot be read."""

    needs: list[str] | None = None


@dataclass(frozen=True)
class Manifest:
    """A manifest as it was read."""

    path: str  # absolute
    fields: dict[str, Any]

    @property
    def folder(self) -> str:
        return os.path.dirname(self.path)

    @property
    def step(self) -> int:
        return int(self.fields["step"])

    @property
    def epoch(self) -> int:
        return int(self.cut["epoch"])

    @property
    def order(self) -> int:
        """Grows with each cut that is frozen; 0: an older version froze it."""
        return int(self.cut.get("order", 0))

    @property
    def frozen(self) -> tuple[int, int, str]:
        """A key that sorts checkpoints by the order in which their cuts were frozen. It does
        not depend on clocks, except for checkpoints of older versions, which have no order:
        they come first, by their writers' clocks."""
        return (self.order, self.epoch, str(self.fields["created"]))

    @property
    def cut(self) -> dict[str, Any]:
        cut: dict[str, Any] = self.fields["cut"]
        return cut

    @property
    def cut_id(self) -> str:
        return str(self.cut["id"])

    @property
    def rank(self) -> int | None:
        rank: int | None = self.fields.get("rank")
        return rank

    @property
    def needs(self) -> list[str]:
        return list(self.fields.get("needs") or ())

    @property
    def files(self) -> list[dict[str, Any]]:
        return list(self.fields.get("files") or ())

    @property
    def pinned(self) -> bool:
        return os.path.lexists(self.path + ".pinned")


def crc64(data: Any, before: int = 0) -> int:
    """Returns the CRC-64/NVME of a buffer. before: that of the bytes before it, to go on from."""
    global _crc64
    if _crc64 is None:  # imported here: only programs that save or restore pay for it
        _crc64 = importlib.import_module("awscrt.checksums").crc64nvme
    return int(_crc64(data, before))


def folder_name(step: int, rank: int | None, cut: str) -> str:
    """Returns the name of a checkpoint's folder. It is for people: nothing reads it."""
    return f"step-{step:010d}{'' if rank is None else f'-rank-{rank}'}-{cut}"


def part_name(rank: int) -> str:
    return f"part-{rank}.json"


# Reading.


def load(path: str) -> Manifest:
    """Reads a manifest. Raises Damaged, Newer and OSError."""
    fields = _open(path, FORMAT)
    where = f"manifest {path}"
    _check(_text(fields.get("job")), where, "job", "it is a name")
    _check(fields.get("model") in MODELS, where, "model", f"it is one of {', '.join(MODELS)}")
    _check(_int(fields.get("step"), 0), where, "step", "it is a whole number from 0")
    _check(_int(fields.get("world_size"), 1), where, "world_size", "it is a whole number from 1")
    private = fields["model"] == "private"
    _check(_int(fields.get("rank"), 0) if private else "rank" not in fields, where, "rank", "private has it")
    _check(_text(fields.get("created")), where, "created", "it is a time")
    _check_files(where, fields.get("files"))
    cut = fields.get("cut")
    if not isinstance(cut, dict):
        raise Damaged(f"{where}: cut: it is missing")
    _check_version(where, "the cut", cut.get("version"), fields)
    wrong = _cut.wrong_head(cut)
    if wrong is not None:
        raise Damaged(f"{where}: cut.{wrong}")
    _check(cut.get("job") == fields["job"], where, "cut.job", "it is not the checkpoint's")
    _check(cut.get("model") == fields["model"], where, "cut.model", "it is not the checkpoint's")
    same = cut["step"] == fields["step"] or fields["model"] == "shared"
    _check(same, where, "cut.step", "it is not the checkpoint's")
    _check(cut.get("rank") == fields.get("rank"), where, "cut.rank", "it is not the checkpoint's")
    _check(_needs(fields) is not None, where, "needs", "it is a list of cuts")
    return Manifest(path, fields)


def _needs(fields: dict[str, Any]) -> list[str] | None:
    needs = fields.get("needs") or []
    return needs if isinstance(needs, list) and all(map(_cut.is_id, needs)) else None


def load_part(path: str) -> dict[str, Any]:
    """Reads a part of a sharded save. Raises Damaged, Newer and OSError."""
    fields = _open(path, PART_FORMAT)
    where = f"part {path}"
    _check(_cut.is_id(fields.get("cut")), where, "cut", "it is 16 hex digits, and not 0")
    for name in ("step", "rank", "world_size"):
        _check(_int(fields.get(name), 0), where, name, "it is a whole number from 0")
    _check(fields["rank"] < fields["world_size"], where, "rank", "it is below the world size")
    _check_files(where, fields.get("files"))
    return fields


def _age(m: Manifest) -> tuple[int, int, int, str]:
    return (m.order, m.epoch, 0 if m.fields["model"] == "shared" else m.step, str(m.fields["created"]))


class Remote(Protocol):
    """A directory of checkpoints that is not of a file system (_bucket.Bucket)."""

    def __fspath__(self) -> str: ...

    def find(self, bad: list[str] | None = None, unread: list[Exception] | None = None) -> list[Manifest]: ...


def find(
    directory: str | Remote, bad: list[str] | None = None, unread: list[Exception] | None = None
) -> list[Manifest]:
    """The good manifests of a directory: its own, and those one level below. The one whose
    cut was frozen last comes first. Manifests of older versions, which have no order, come
    after the others, by epoch and step (shared: by epoch and clock, because each process of
    a rank counts its own steps). The reasons why others do not count go to `bad`. The errors
    of those that may be good (Newer, OSError) go to `unread`, too. Raises CheckpointError if
    the directory itself cannot be read."""
    if not isinstance(directory, str):
        return directory.find(bad, unread)
    found: list[Manifest] = []
    bad = bad if bad is not None else []
    unread = unread if unread is not None else []
    for path in _manifests(directory, bad, unread):
        try:
            found.append(load(path))
        except FileNotFoundError:
            continue  # somebody removes it
        except CheckpointError as error:
            bad.append(str(error))
            if isinstance(error, Newer):
                unread.append(error)
        except OSError as error:
            bad.append(f"{path}: {error.strerror or error}")
            unread.append(error)
    found.sort(key=_age, reverse=True)
    return found


def highest_order(directory: str | Remote) -> int:
    """Returns the highest order of a directory's checkpoints; 0: none has one."""
    return max((m.order for m in find(directory)), default=0)


def _manifests(directory: str, bad: list[str], unread: list[Exception]) -> Iterator[str]:
    try:
        entries = _entries(directory)
    except OSError as error:  # nobody knows what is in it
        raise CheckpointError(f"the checkpoints in {directory} cannot be seen: {error.strerror or error}") from error
    for entry in entries:
        if entry.is_file() and _is_manifest(entry.name):
            yield entry.path
        elif entry.is_dir() and not entry.name.startswith("."):
            try:
                below = _entries(entry.path)
            except OSError as error:
                if own_folder(entry.path):  # else it is lost+found, or a folder that has nothing to do with us
                    bad.append(f"{entry.path}: {error.strerror or error}")
                    unread.append(error)
                continue
            yield from (e.path for e in below if e.is_file() and _is_manifest(e.name))


def _entries(directory: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return sorted(entries, key=lambda e: e.name)
    except FileNotFoundError:
        return []


def _is_manifest(name: str) -> bool:
    return name == FILE_NAME or (name.endswith("." + FILE_NAME) and not name.startswith("."))


def is_ours(path: str) -> bool:
    """Manifests, pins, parts and temporary files: never listed as a checkpoint's files."""
    name = os.path.basename(path)
    return name == FILE_NAME or f".{FILE_NAME}" in name or name.startswith(FILE_NAME + ".") or bool(_PART.match(name))


def verify(manifest: Manifest) -> str | None:
    """Reads all files and the whole cut. Returns the first fault; None: there is none."""
    if wrong := _cut.wrong_inside(manifest.cut):
        return f"{manifest.path}: cut.{wrong}"
    root = os.path.realpath(manifest.folder)
    for file in manifest.files:
        path = os.path.join(root, file["path"])
        try:
            if os.path.commonpath([os.path.realpath(path), root]) != root:
                return f"{path}: a link leads out of the checkpoint's folder"
            with open(path, "rb", buffering=0) as f:
                size = os.fstat(f.fileno()).st_size
                if size != file["size"]:
                    return f"{path}: it has {size} bytes, its manifest says {file['size']}"
                crc, _ = _sum(f)
        except OSError as error:
            return f"{path}: {error.strerror or error}"
        if f"{crc:016x}" != file["crc64nvme"]:
            return f"{path}: its checksum is {crc:016x}, its manifest says {file['crc64nvme']}"
    return None


def own_folder(path: str) -> bool:
    """Whether folder_name() named the folder: then everything in it belongs to the checkpoint."""
    return bool(_FOLDER.match(os.path.basename(path)))


# What both share.


def _sum(file: Any) -> tuple[int, int]:
    buffer = memoryview(bytearray(_CHUNK))
    crc = size = 0
    while n := file.readinto(buffer):
        crc = crc64(buffer[:n], crc)
        size += n
    return crc, size


def _open(path: str, format_: str) -> dict[str, Any]:
    data = Path(path).read_bytes()
    if len(data) > MAX_BYTES:
        raise Damaged(f"{path}: {len(data)} bytes, at most {MAX_BYTES}")
    if not data.strip():
        raise Damaged(f"{path}: it is empty")
    try:
        fields = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Damaged(f"{path}: it is not JSON: {error}") from None
    if not isinstance(fields, dict) or fields.get("format") != format_:
        raise Damaged(f"{path}: it is no {format_}")
    _check_version(path, "it", fields.get("version"), fields)
    found = _SUM.search(data, max(0, len(data) - _SUM_BYTES - 16))
    if found is None:
        raise Damaged(f"{path}: it does not end with its checksum")
    if int(found.group(1), 16) != crc64(memoryview(data)[: found.start()]):
        raise Damaged(f"{path}: its checksum does not match its text")
    return fields


def _check_version(where: str, what: str, version: Any, fields: dict[str, Any]) -> None:
    if _int(version, VERSION + 1):
        newer = Newer(f"{where}: {what} has version {version}, this headrace knows {VERSION}: use a newer one")
        newer.needs = _needs(fields)
        raise newer
    _check(_int(version, 1), where, "version", "it is a whole number from 1")


def _check_files(where: str, files: Any) -> None:
    files = [] if files is None else files
    if not isinstance(files, list) or len(files) > MAX_FILES:
        raise Damaged(f"{where}: files: a list of at most {MAX_FILES}")
    seen: set[str] = set()
    for file in files:
        path = str(file.get("path", "")) if isinstance(file, dict) else ""
        _check(_within(path) and not is_ours(path), where, "files", f"path {path!r}")
        _check(path not in seen, where, "files", f"{path!r} is there twice")
        _check(_int(file.get("size"), 0), where, "files", f"size of {path!r}")
        crc = file.get("crc64nvme")
        _check(isinstance(crc, str) and bool(_HEX.match(crc)), where, "files", f"checksum of {path!r}")
        seen.add(path)


def _within(path: str) -> bool:
    parts = path.split("/")
    return "\\" not in path and path.isprintable() and not any(part in ("", ".", "..") for part in parts)


def _check(ok: bool, where: str, field: str, why: str) -> None:
    if not ok:
        raise Damaged(f"{where}: {field}: {why}")


def _int(value: Any, least: int) -> bool:
    return type(value) is int and least <= value < 1 << 63


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 256
