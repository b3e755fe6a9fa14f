"""Saves to memory, and from there to storage in the background (docs/FLASH.md)."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from . import _files, _image, _manifest, _memory, _publish, _slots, _state
from ._bucket import Bucket
from ._cuts import Cut
from ._durable import room
from ._errors import CheckpointError, HeadraceError
from ._manifest import Manifest
from ._memory import InMemory, Memory, Written
from ._peers import AtPeer, Peers
from ._saved import Saved
from ._slots import Reading
from ._verified import Verified

if TYPE_CHECKING:
    from ._checkpoint import Checkpointer

log = logging.getLogger("headrace")

_LOOK = 0.02  # seconds between two looks
_COPIED_PER_SECOND = 2 << 30  # bytes, by a program that copies what was restored
FILE_NAME = "state.safetensors"  # on storage
VERSION = 1  # of what a slot says of itself


class Pinned:
    """A complete slot that is being written to storage."""

    def __init__(self, path: str, cut: str | None = None) -> None:
        """cut: of the checkpoint that has to be there. Raises CheckpointError."""
        try:
            self._reading = Reading(path)
        except OSError as error:
            raise CheckpointError(f"{path}: {error}") from error
        manifest = self._reading.about["manifest"]
        if cut is not None and manifest["cut"]["id"] != cut:
            self._reading.close()
            raise CheckpointError(f"{path} holds another checkpoint by now")
        self.path = path
        self.step = int(manifest["step"])
        self.cut = Cut(manifest["cut"]["id"], self.step, manifest["cut"])
        self.order = int(manifest["cut"]["order"])
        self.state: dict[str, Any] = {k: v for k, v in manifest["state"].items() if k != "file"}
        self.needs: list[str] = list(manifest.get("needs") or ())
        self.size = self._reading.control.image

    @property
    def tree(self) -> Any:
        return self.state["tree"]

    def arrays(self) -> dict[str, Any]:
        """The arrays where they lie: as long as this is open, nobody writes them. Raises
        CheckpointError if the memory has changed since it was written."""
        fault = self._reading.fault()
        if fault is not None:
            raise CheckpointError(fault)
        return _image.load(self._reading.memory, self.size, self.tree)

    def write(self, path: str) -> dict[str, Any]:
        """Writes the image as a file, durably. Returns its entry in the manifest. Raises
        CheckpointError if the memory has changed since it was written."""
        crc = 0
        with room(path, self.size), open(path, "wb", buffering=0) as file:
            for part in _slots.chunks(self._reading.memory, self.size):
                crc = _manifest.crc64(part, crc)
                done = 0
                while done < len(part):
                    done += file.write(part[done:])
            os.fsync(file.fileno())
        if crc != self._reading.control.image_crc:
            raise CheckpointError(
                f"{self._reading.path}: its memory has changed since it was written: the checksum differs"
            )
        return {"path": os.path.basename(path), "size": self.size, "crc64nvme": f"{crc:016x}"}

    def close(self) -> None:
        self._reading.close()


def about_of(
    directory: str,
    rank: int,
    cut: Cut,
    step: int,
    tree: Any = None,
    shard: bool = False,
    base: _state.Base | None = None,
    own: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """The description of a checkpoint in its slot. It may go to that directory. shard: it is
    the rank's own part of one. base: of a delta. own: places that get files of their own."""
    name = f"state-rank-{rank}.safetensors" if shard else FILE_NAME
    state = {"format": _state.FORMAT, "version": _state.VERSION, "tree": tree, "file": name}
    if base is not None:
        state.update(version=_state.DELTAS, base=base._asdict())
    if own:
        state.update(version=_state.FILES, own=_files.names(own, os.path.splitext(name)[0]))
    folder = _manifest.folder_name(step, cut.body.get("rank"), cut.id)
    about = {
        "version": VERSION,
        "path": os.path.join(directory, folder, _manifest.FILE_NAME),
        "rank": rank,
        "node": socket.gethostname(),
        "run": os.environ.get("HEADRACE_RUN", ""),
        "manifest": _publish.manifest_of(cut.body, step, [], state, [base.cut] if base is not None else None),
    }
    if shard:
        about["shard"] = True
    return about


class Flash:
    """The checkpoints in memory of one Checkpointer."""

    def __init__(self, owner: Checkpointer, slots: int) -> None:
        self._owner = owner
        self._trainer = owner._trainer
        at = owner._at
        self.folder = at.slots if isinstance(at, Bucket) else _slots.Folder(at, self._trainer.job)
        self._shard = owner._sharded
        self.peers = Peers(self._trainer, self.folder, self._trainer.model == "replicated" and not self._shard)
        # One that is copied to another node is pinned meanwhile: it takes a slot of its own.
        self.memory = Memory(self.folder, self._trainer.rank, slots, self.peers.copies())
        self._verified = Verified()
        self._size = 0  # of a slot that was restored from another node
        self._told = False  # that there is no room
        self._changed = threading.Condition()
        self._want: tuple[Saved, str, int] | None = None
        self._writing = False
        self._followers: list[Saved] = []  # saves that a newer one has taken the place of
        #: Where the checkpoints that earlier processes have left in memory lie if they are on storage too, by cut.
        self._before = {m.cut_id: m.path for m in _memory.found(self.folder, self._trainer.rank)}
        there = self.candidates()[0]
        self._verified.begin(there, self.group)
        if not there:  # else after the restore, which it would slow down
            self.warm()

    @property
    def group(self) -> bool:
        """Other ranks have to go back to the same checkpoint."""
        return self._trainer.model == "replicated" and self._trainer.world_size > 1

    def copy(self, state: Any) -> Written | None:
        """Copies the state into a slot. None: there is no room, and that was said."""
        self._verified.close()  # nobody goes back any more
        deltas = self._owner._deltas
        flat = deltas.flatten(state) if deltas.names else _state.flatten(state, self._owner._own)
        try:
            written = self.memory.copy(flat, self._halfway)
            written.copy = deltas.copied(flat)
            return written
        except OSError as error:
            if not self._told:
                self._told = True
                log.warning("%s", self._no_room(flat.size, error))
            return None

    @property
    def _halfway(self) -> Any:
        from ._checkpoint import Checkpointer

        if type(self._owner)._reached is Checkpointer._reached:
            return None
        return lambda: self._owner._reached("copying")

    def _no_room(self, size: int, error: OSError) -> str:
        where = self.folder.path
        need = 2 * (size + _memory.ROOM)
        return (
            f"checkpoints stay on storage only: two copies of this state in memory need {need} bytes in {where}: "
            f"{error.strerror or error}. Make room there (Docker: --shm-size; Kubernetes: an emptyDir with "
            f"medium Memory), or name another tmpfs with {_slots.ROOT_VARIABLE}"
        )

    def complete(self, written: Written, cut: Cut, step: int) -> str:
        """Makes the copy a checkpoint, which carries its cut. Gives the slot's path."""
        owner, rank = self._owner, self._trainer.rank
        about = about_of(owner.dir, rank, cut, step, written.tree, self._shard, own=owner._own)
        self.memory.complete(written, json.dumps(about, separators=(",", ":"), allow_nan=False).encode(), cut.id)
        self._owner._deltas.holds(cut.id, written.copy)
        return written.slot.path

    def only_in_memory(self, cut: str) -> bool:
        """Whether a checkpoint whose slot was used again is nowhere else: not on storage, and not on its way there."""
        if cut in self._trainer.to_storage:
            return False
        path = self._before.pop(cut, None)
        try:
            return path is None or not self._owner._has(path)
        except HeadraceError:
            return False  # nobody knows; the master forgets it when a newer one is on storage

    # To storage.

    def persist(self, saved: Saved, slot: str, order: int) -> None:
        """Has the checkpoint in the slot written to storage. If another one is being
        written, this one waits; the newest takes the place of those that wait."""
        with self._changed:
            if self._writing:
                if self._want is not None:
                    self._followers.append(self._want[0])
                self._want = (saved, slot, order)
                return
            # Pinned here: the next save may follow at once.
            pinned = Pinned(slot, str(saved.cut))
            self._writing = True
        try:
            threading.Thread(target=self._write, args=([saved], pinned), name="headrace-persist", daemon=False).start()
        except RuntimeError:  # there are too many, or the interpreter ends: this thread does it
            saved._held.set()
            self._write([saved], pinned)

    def _write(self, saves: list[Saved], pinned: Pinned | None) -> None:
        order = 0
        while True:
            error: BaseException | None = None
            path: str | None = None
            try:
                pinned = pinned or self._newest(order)
                path = self._owner._persist(pinned)
            except BaseException as failure:
                error = failure
                log.warning("the checkpoint of step %d stays in memory only: %s", saves[-1].step, failure)
            finally:
                if pinned is not None:
                    pinned.close()
            pinned = None
            for saved in saves:
                saved.path = path
                saved._end(error)
            with self._changed:
                if self._want is None:
                    self._writing = False
                    self._changed.notify_all()
                    return
                saves, self._followers = [*self._followers, self._want[0]], []
                (_, slot, order), self._want = self._want, None
            with contextlib.suppress(CheckpointError):
                pinned = Pinned(slot, str(saves[-1].cut))

    def _newest(self, order: int) -> Pinned:
        """What has taken the place of a checkpoint that waited: it is newer. The save
        that overwrites it may be under way."""
        while self._owner._alive():
            slot = self.memory.newest()
            with contextlib.suppress(CheckpointError):
                pinned = Pinned(slot) if slot is not None else None
                if pinned is not None and pinned.order >= order:
                    return pinned
                if pinned is not None:
                    pinned.close()
            time.sleep(_LOOK)
        raise CheckpointError("the checkpoint that took its place in memory did not become whole")

    def wait(self) -> None:
        """Waits until nothing is being written to storage."""
        with self._changed:
            while self._writing:
                self._changed.wait()

    # Going back.

    def candidates(self) -> tuple[list[InMemory], list[str]]:
        """The checkpoints in this node's memory, newest first; and why others do not count."""
        return self._fitting(_memory.found(self.folder, self._trainer.rank))

    def at_peers(self, known: list[str]) -> tuple[list[InMemory], list[str]]:
        """Returns the checkpoints in the memory of other nodes, without the cuts in `known`."""
        found, faults = self.peers.find(known)
        whole, why = self._fitting(found)
        return whole, [*faults, *why]

    def gone_back(self) -> None:
        """The restore has ended."""
        self._verified.close()

    def restored(self, manifest: Manifest) -> None:
        """The state is mapped, or read."""
        if isinstance(manifest, AtPeer):
            self._size = _memory.size_of(os.path.getsize(self.peers.bring(manifest)))
        self.peers.clean()

    def _fitting(self, found: Sequence[InMemory]) -> tuple[list[InMemory], list[str]]:
        """Returns the checkpoints that this rank can go back to, and why others do not count."""
        trainer = self._trainer
        whole: list[InMemory] = []
        why: list[str] = []
        for m in found:
            if m.fields["job"] != trainer.job or m.fields["model"] != trainer.model:
                continue
            if m.shard != self._shard:
                is_ = "one rank's part" if m.shard else "the whole state"
                why.append(f"step {m.step} in memory is {is_}, and sharded={self._shard}")
                continue
            world = int(m.fields["world_size"])
            if trainer.model == "private" or world == trainer.world_size:
                whole.append(dataclasses.replace(m, verified=self._verified))
                continue
            why.append(
                f"step {m.step} lies in memory of a group of {world} ranks, and this one has {trainer.world_size}"
            )
        return whole, why

    def highest_order(self) -> int:
        """Returns the highest order of this rank's checkpoints in memory; 0: there is none."""
        return max((m.order for m in _memory.found(self.folder, self._trainer.rank)), default=0)

    def warm(self, restored: bool = False) -> None:
        """Prepares the memory for a state as large as the newest checkpoint. restored: the
        program is about to copy it into its model, so this waits for about as long as that takes."""
        sizes = [os.path.getsize(path) for path in self.folder.of(self._trainer.rank)]
        if not any(sizes) and self._size:
            sizes = [self._size]
        elif not any(sizes):
            try:
                own = (None, self._trainer.rank)  # of a sharded one, only this rank's files
                sizes = [
                    _memory.size_of(sum(int(f["size"]) for f in m.files if f.get("rank") in own))
                    for m in _manifest.find(self._owner._at)[:1]
                ]
            except HeadraceError:
                return
        size = max(sizes, default=0)
        self.memory.warm(size, delay=max(1.0, size / _COPIED_PER_SECOND) if restored else 0.0)

    def prepare(self, state: Any) -> None:
        """Prepares the memory for that state."""
        deltas = self._owner._deltas
        flat = deltas.flatten(state) if deltas.names else _state.flatten(state, self._owner._own)
        layout = _image.Layout(flat)
        self.memory.warm(_memory.size_of(layout.size), layout)

    def close(self, ended: bool) -> None:
        """ended: the trainer ends without an error. Then slots whose checkpoint is on storage are removed."""
        self.wait()
        self._verified.close()
        newest = self.memory.newest()
        self.memory.close()
        about = _slots.peek(newest) if ended and newest is not None else None
        if about is not None and self._owner._has(about["path"]):
            for path in self.folder.of(self._trainer.rank):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)
            self.peers.forget()
