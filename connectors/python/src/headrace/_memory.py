"""A rank's slots: which one to write, and the copy into it."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

from . import _image, _slots
from ._copying import Copy
from ._errors import CheckpointError
from ._manifest import Manifest
from ._slots import PAGE, Folder, Slot
from ._state import Captured
from ._verified import Verified, opened

log = logging.getLogger("headrace")

_LOOK = 0.05  # seconds between two looks
NEW = ".new"  # a file that will take a slot's place
# Slots whose arrays this process uses: their inodes, each as often as it was loaded.
_restored: list[int] = []
_forks: list[None] = []  # one for each fork of this process
os.register_at_fork(after_in_parent=lambda: _forks.append(None))
ROOM = 1 << 20  # for what is said of a checkpoint, beside its image


def size_of(image: int) -> int:
    """How large a slot for an image is."""
    return PAGE + _slots.pages(image) + ROOM


@dataclass
class Written:
    """A copy in a slot that is not complete yet."""

    slot: Slot
    number: int
    image: int  # bytes
    tree: Any
    replaced: str | None  # the cut of what lay there
    copy: int = 0  # its number (_delta.py)


class Memory:
    """The slots of one rank.

    The only complete slot is never overwritten. A slot that somebody reads is pinned: the
    writer takes another one, and nobody waits.
    """

    def __init__(self, folder: Folder, rank: int, slots: int, more: int = 0) -> None:
        """more: slots that are used if there is room for them."""
        self.folder = folder
        self.rank = rank
        self._count = slots + more
        self._least = slots
        self._slots: dict[int, Slot] = {}
        self._layouts: dict[int, tuple[Any, _image.Layout, Copy]] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._warming: threading.Thread | None = None
        self._not_before = 0.0
        self._wanted: tuple[int, _image.Layout | None] | None = None  # the next size and layout to warm
        with self._lock:
            for number in range(self._count):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(folder.slot(rank, number) + NEW)  # of a process that was killed in _anew()
                if os.path.exists(folder.slot(rank, number)):
                    self._slot(number)

    def copy(self, flat: Captured, halfway: Any = None) -> Written:
        """Copies the arrays into a slot. Raises OSError (ENOSPC) if there is no room.
        halfway: called between two arrays, for tests."""
        with self._lock:
            while True:
                index = self._choose()
                slot = self._slot(index)
                try:
                    layout, copy = self._layout(index, slot, flat)
                    break
                except BaseException as error:
                    slot.unlock()
                    if not isinstance(error, OSError) or index < self._least or slot.cut is not None:
                        raise
                    self._do_without(index, error)
            try:
                number = 1 + max(s.number() for s in self._slots.values())
                replaced, slot.cut = slot.cut, None
                slot.begin(number, layout.header)
                if halfway is not None:
                    names = copy.names
                    copy.some(names[: len(names) // 2]).run(flat.arrays)
                    halfway()
                    copy = copy.some(names[len(names) // 2 :])
                copy.run(flat.arrays)
            except BaseException:
                slot.unlock()
                raise
            return Written(slot, number, layout.size, flat.tree, replaced)

    def _do_without(self, index: int, error: OSError) -> None:
        """Goes on without an extra slot, because there is no room for it."""
        log.warning(
            "no room for one more copy of the state, which is used while a checkpoint goes to another node: %s. If the "
            "job crashes meanwhile, it may go back to that checkpoint instead of a newer one",
            error.strerror or error,
        )
        slot = self._slots.pop(index)
        self._count = self._least
        slot.close()
        with contextlib.suppress(FileNotFoundError):
            os.unlink(slot.path)

    def complete(self, written: Written, about: bytes, cut: str) -> None:
        """Writes the description of the copy, and the end mark."""
        slot = written.slot
        assert slot.memory is not None
        crc = _slots.image_crc(slot.memory, written.image)
        with self._lock:
            slot.end(written.number, written.image, crc, about)
            slot.cut = cut
            if any(other.cut == written.replaced for other in self._slots.values()):
                written.replaced = None  # a step that was saved twice has one cut
            slot.unlock()

    def give_up(self, written: Written) -> None:
        """The copy will not be complete."""
        with self._lock, contextlib.suppress(OSError):
            written.slot.unlock()

    def newest(self) -> str | None:
        """The path of the newest complete slot."""
        with self._lock:
            found = [(c.number, s.path) for s in self._slots.values() if (c := s.control()) is not None]
        return max(found)[1] if found else None

    def warm(self, size: int, layout: _image.Layout | None = None, delay: float = 0.0) -> None:
        """Makes the slots that large and maps their memory, in the background: then the
        first save is as fast as any other. layout: of the state that it will save. delay:
        seconds before it begins."""
        with self._lock:
            if size <= 0 or self._stop.is_set():
                return
            self._wanted = (size, layout)
            self._not_before = time.monotonic() + delay
            if self._warming is None:
                warming = threading.Thread(target=self._warm, name="headrace-warm", daemon=True)
                with contextlib.suppress(RuntimeError):  # there are too many: the first save does it
                    warming.start()
                    self._warming = warming

    def warmed(self) -> None:
        """Waits for warm()."""
        warming = self._warming
        if warming is not None:
            warming.join()

    def close(self) -> None:
        self._stop.set()
        self.warmed()
        with self._lock:
            self._layouts.clear()
            for slot in self._slots.values():
                slot.close()
            self._slots.clear()

    def _warm(self) -> None:
        while True:
            with self._lock:
                wanted, self._wanted = self._wanted, None
                if wanted is None:
                    self._warming = None
                    return
            while self._wanted is None and (wait := self._not_before - time.monotonic()) > 0:
                if self._stop.wait(min(wait, _LOOK)):
                    return
            if self._wanted is None:
                self._warm_for(*wanted)

    def _warm_for(self, need: int, layout: _image.Layout | None) -> None:
        for index in range(self._count):
            at = 0
            while not self._stop.is_set() and self._wanted is None:
                with self._lock:
                    slot = self._slot(index)
                    if slot.capacity < need:
                        if not slot.lock():
                            break  # somebody reads it: it is in use, so it is large enough, or will grow
                        try:
                            slot.grow(need)
                        except OSError:
                            return  # the first save tells
                        finally:
                            slot.unlock()
                    at = slot.touch(at)
                    if at == 0 and layout is not None:
                        self._laid(index, slot, layout)
                if at == 0:
                    break

    def _slot(self, index: int) -> Slot:
        path = self.folder.slot(self.rank, index)
        slot = self._slots.get(index)
        if slot is None:
            slot = self._slots[index] = Slot(path)
        return slot

    def _choose(self) -> int:
        """The slot to write, locked."""
        slots = {index: self._slot(index) for index in range(self._count)}
        complete = {index: c.number for index, s in slots.items() if (c := s.control()) is not None}
        newest = max(complete, key=lambda index: complete[index]) if complete else None
        for index in sorted(slots, key=lambda index: complete.get(index, 0)):  # incomplete ones first, then the oldest
            if index != newest and slots[index].lock():
                return index
        if newest is None:
            raise CheckpointError(f"all slots of {slots[0].path} are in use by another process")
        others = sorted((i for i in slots if i != newest), key=lambda i: complete.get(i, 0))
        # The program may keep its restored state, and so pin a slot, for as long as it runs.
        for index in others:
            if slots[index].made in _restored:
                with contextlib.suppress(OSError):
                    return self._anew(index)
        if len(complete) > 1 and slots[newest].lock():
            return newest  # an older one is complete, and pinned
        return self._anew(others[0])

    def _anew(self, index: int) -> int:
        """A new file in the place of a slot that is pinned, locked. Its readers keep the old file
        open, and its memory goes with the last of them. Raises OSError (ENOSPC): there is no room
        for both."""
        old = self._slots[index]
        temp = old.path + NEW
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temp)
        fd = os.open(temp, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if old.capacity:
                _slots.take_room(fd, temp, 0, old.capacity)
            os.rename(temp, old.path)
        except BaseException:
            os.unlink(temp)
            raise
        finally:
            os.close(fd)
        del self._slots[index]
        self._layouts.pop(index, None)
        old.close()
        slot = self._slot(index)
        slot.cut = old.cut
        if not slot.lock():
            raise CheckpointError(f"{slot.path} is in use by another process")
        return index

    def _layout(self, index: int, slot: Slot, flat: Captured) -> tuple[_image.Layout, Copy]:
        shape = _image.shape(flat)
        known = self._layouts.get(index)
        if known is not None and known[0] is slot.memory and known[1].shape == shape:
            return known[1], known[2]
        layout = next((k[1] for k in self._layouts.values() if k[1].shape == shape), None) or _image.Layout(flat)
        self._layouts.pop(index, None)  # its views would keep memory that is too small
        slot.grow(size_of(layout.size))
        return layout, self._laid(index, slot, layout)

    def _laid(self, index: int, slot: Slot, layout: _image.Layout) -> Copy:
        assert slot.memory is not None
        copy = Copy(layout.views(slot.memory))
        self._layouts[index] = (slot.memory, layout, copy)
        return copy


@dataclass(frozen=True)
class InMemory(Manifest):
    """A checkpoint in a slot, as a manifest. path: where it would be on storage."""

    slot: str = ""
    shard: bool = False  # this rank's own part of a sharded checkpoint
    verified: Verified | None = field(default=None, compare=False, repr=False)

    def fault(self) -> str | None:
        """None: it is as it was written."""
        if self.verified is not None:
            return self.verified.fault(self)
        once = Verified()
        try:
            return once.fault(self)
        finally:
            once.close()

    def load(self) -> tuple[Any, dict[str, Any]]:
        """The tree of the state and its arrays, which are the slot's own memory. Writes to
        them stay in this process. The slot is pinned from the comparison with its checksum
        until none of the arrays lives any more. Raises CheckpointError."""
        reading = self.verified.take(self) if self.verified is not None else None
        reading = reading or opened(self)
        try:
            tree = self.fields["state"]["tree"]
            arrays = _image.load(reading.memory, reading.control.image, tree)
        except BaseException:
            reading.close()
            raise
        _restored.append(reading.made)
        weakref.finalize(reading.memory, _let_go, reading.release(), reading.made, len(_forks))
        return tree, arrays


def _let_go(fd: int, made: int, forks: int) -> None:
    """This process does not use the arrays of a slot any more. A process that was forked meanwhile has them
    too, and pins the slot until it ends."""
    if forks == len(_forks):
        _restored.remove(made)
    os.close(fd)


def found(folder: Folder, rank: int) -> list[InMemory]:
    """The complete checkpoints of a rank on this node, newest first."""
    all_: list[InMemory] = []
    for path in folder.of(rank):
        about = _slots.peek(path)
        if about is not None and about.get("version") == 1:
            shard = bool(about.get("shard"))
            all_.append(InMemory(path=about["path"], fields=about["manifest"], slot=path, shard=shard))
    return sorted(all_, key=lambda m: m.frozen, reverse=True)
