"""Going back to a checkpoint, as each rank does it."""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _basis, _cuts, _durable, _files, _manifest, _pickled, _state
from ._bucket import Bucket, Stored
from ._calls import Answer
from ._cuts import Cut
from ._errors import CheckpointError
from ._manifest import Manifest
from ._memory import InMemory
from ._peers import AtPeer

if TYPE_CHECKING:
    from ._flash import Flash
    from ._trainer import Trainer

log = logging.getLogger("headrace")


@dataclass(frozen=True)
class Restored:
    """A checkpoint that this process has gone back to."""

    step: int
    state: Any  # this rank's; None if a framework wrote the checkpoint
    path: str  # the checkpoint's folder, or the framework's file
    cut: Cut
    manifest: Manifest
    source: str = "storage"  # or "memory", or "peer": another node's memory
    why: str = ""  # it was taken from there
    rank: int = 0  # of this process
    only: tuple[str, ...] | None = None  # the places that were asked for

    def shard(self, rank: int) -> Any:
        """The part of a sharded checkpoint that `rank` had saved; for another number of ranks.
        Raises CheckpointError for another rank's part of a checkpoint in memory."""
        if isinstance(self.manifest, InMemory) and self.manifest.shard:
            if rank != self.rank:
                raise CheckpointError(
                    f"step {self.step} lies in memory, where each rank has its own part: rank {rank} has this one"
                )
            return self.state
        try:
            return _load(self.manifest, rank, self.only)
        finally:
            if isinstance(self.manifest, Stored):
                self.manifest.bucket.drop()

    @property
    def shards(self) -> int:
        """How many ranks have saved the checkpoint; 0: it is not sharded."""
        if isinstance(self.manifest, InMemory):
            return int(self.manifest.fields["world_size"]) if self.manifest.shard else 0
        return len((self.manifest.fields.get("state") or {}).get("shards", ()))


class Place:
    """Where a trainer's checkpoints lie: a folder, and the memory of this node."""

    def __init__(
        self, trainer: Trainer, directory: str | Bucket, flash: Flash | None, only: Iterable[str] | None = None
    ) -> None:
        self.trainer = trainer
        self.only = only if only is None else (only,) if isinstance(only, str) else tuple(only)
        self.directory = directory
        self._flash = flash
        self.memory, self.passed_over = flash.candidates() if flash is not None else ([], [])
        self._faults: dict[str, str | None] = {}  # of what lies in memory, by slot
        self.readable: list[str] | None = None  # what this rank can read from memory; None: it does not look there
        if flash is not None:
            self.readable = self._whole(flash.group)
            others, why = flash.at_peers([m.cut_id for m in self.memory if self._faults.get(m.slot) is None])
            self.memory += others
            self.passed_over += why
            self.readable += [m.cut_id for m in others]  # their agents have compared the checksums

    def _whole(self, group: bool) -> list[str]:
        """The cuts in this node's memory whose checksums are right. group: all of them, because
        another rank may lack the newest one; otherwise only the newest."""
        whole: list[str] = []
        for manifest in self.memory:
            if (group or not whole) and self.fault(manifest) is None:
                whole.append(manifest.cut_id)
        return whole

    def load(self, path: str) -> Manifest:
        return load(self.directory, path)

    def unreadable(self, path: str) -> str | None:
        """None: a checkpoint lies there that verifies."""
        try:
            return _verified(self.load(path))
        except (OSError, CheckpointError) as error:
            return f"{path}: {error}"

    def fault(self, manifest: Manifest) -> str | None:
        """None: it is as it was written."""
        if not isinstance(manifest, InMemory):
            return _verified(manifest)
        if manifest.slot not in self._faults:
            fault = self._faults[manifest.slot] = manifest.fault()
            if self.readable is not None:
                others = [cut for cut in self.readable if cut != manifest.cut_id]
                self.readable = others if fault is not None else [*others, manifest.cut_id]
        return self._faults[manifest.slot]

    def not_everywhere(self, manifest: InMemory, why: str) -> None:
        """Another rank cannot read it: it does not count."""
        self.memory = [m for m in self.memory if m.slot != manifest.slot]
        self.passed_over.append(f"step {manifest.step} in memory: {why}")

    def candidates(self) -> list[Manifest]:
        """The checkpoints to go back to, newest first; for the same cut, memory comes first."""
        stored = _candidates(self.trainer, self.directory)
        if not self.memory:
            return stored
        return sorted([*self.memory, *stored], key=lambda m: (m.order, m.epoch), reverse=True)

    def highest_order(self) -> int:
        return max([highest_order(self.directory, self._flash), *(m.order for m in self.memory)])

    def restored(self, taken: Manifest) -> None:
        """Its state was loaded."""
        if self._flash is not None:
            self._flash.restored(taken)

    def why(self, taken: Manifest) -> str:
        """Why it was taken from where it lies."""
        if self._flash is None:
            return "memory=True was not asked for"
        if isinstance(taken, InMemory):
            stored = _candidates(self.trainer, self.directory)
            of = f"the newest on storage is step {stored[0].step}" if stored else "there is none on storage"
            if isinstance(taken, AtPeer):
                whose = "" if taken.writer == self.trainer.rank else f" as rank {taken.writer}'s copy"
                lost = "; ".join(self.passed_over) or "this node's memory has no checkpoint that is as new"
                return f"step {taken.step} is whole in memory of agent {taken.agent}{whose}, {of}; {lost}"
            return f"step {taken.step} is whole in memory, and {of}"
        newer = [m for m in self.memory if m.order > taken.order]
        if newer:
            return f"step {newer[0].step} in memory cannot be restored"
        return "; ".join(self.passed_over) or "nothing newer is in memory"


def load(directory: str | Bucket, path: str) -> Manifest:
    """Returns the manifest at path. Raises OSError, CheckpointError."""
    return directory.load(path) if isinstance(directory, Bucket) else _manifest.load(path)


def highest_order(directory: str | Bucket, flash: Flash | None) -> int:
    """Returns the highest order of the checkpoints in a folder and in this node's memory."""
    return max(_manifest.highest_order(directory), flash.highest_order() if flash is not None else 0)


def restore(
    trainer: Trainer,
    directory: str | Bucket,
    step: int | str,
    flash: Flash | None = None,
    only: Iterable[str] | None = None,
) -> Restored | None:
    """See Checkpointer.restore."""
    try:
        return _restore(trainer, Place(trainer, directory, flash, only), step)
    finally:
        if isinstance(directory, Bucket):
            directory.drop()
        if flash is not None:
            flash.gone_back()


def _restore(trainer: Trainer, place: Place, step: int | str) -> Restored | None:
    if step == "start":
        answer = _cuts.restore(trainer, "start", None, "", [], "starting over", place.highest_order())
        if answer.code != "ok":
            raise CheckpointError(f"starting over was refused: {answer.reason}")
        return _gone_back(trainer, answer, None, place)
    if step == "newest":
        return _newest(trainer, place)
    if isinstance(step, str):
        raise ValueError(f'step={step!r}; it is "newest", "start" or a number')
    return _exact(trainer, place, step)


def load_carried(trainer: Trainer, state: dict[str, Any]) -> None:
    """See Stream.load_state_dict."""
    cut, step = state.get("id"), state.get("step")
    if not isinstance(cut, str) or type(step) is not int or "datasets" not in state:
        raise CheckpointError("this is not a state of Stream.state_dict(): it has no id, step and datasets")
    trainer.check()
    what = f"load_state_dict() of step {step}"
    answer = _cuts.restore(trainer, "exact", state, "", [], what)
    if answer.code != "ok":
        raise CheckpointError(f"{what}: {answer.reason or answer.code}")
    if answer.cut != cut:
        started = answer.cut in ("", _cuts.NONE)
        where = "began with nothing" if started else f"went back to checkpoint {answer.cut} of step {answer.step}"
        raise CheckpointError(
            f"this group or process {where} already, so {what} (id {cut}) comes too late: it comes once, before the "
            "first step, and every rank loads the same state"
        )
    if answer.again:
        log.warning("load_state_dict() of step %d: %s", step, answer.again)
    trainer.last_step = step


def _exact(trainer: Trainer, place: Place, step: int) -> Restored | None:
    faults: list[str] = []
    after = place.highest_order()
    for manifest in place.candidates():
        if manifest.step != step:
            continue
        fault = place.fault(manifest)
        if fault is None:
            what = f"restoring {manifest.path}"
            memory = isinstance(manifest, InMemory)
            answer = _cuts.restore(
                trainer, "exact", manifest.cut, manifest.path, [], what, after, memory, place.readable
            )
            if answer.code == "ok":
                return _gone_back(trainer, answer, manifest, place)
            fault = f"{manifest.path}: {answer.reason}"
        faults.append(fault)
    why = "; ".join(faults) or f"there are steps {sorted({m.step for m in place.candidates()})}"
    raise CheckpointError(f"no checkpoint of step {step} in {place.directory} can be restored: {why}")


def _newest(trainer: Trainer, place: Place) -> Restored | None:
    """Goes back to the newest checkpoint. It offers the master the newest one that verifies
    here. The master may know a newer one, or that this one was voided; then the next one
    is offered, until the master takes one.

    A process that starts a shared model over offers none. In the other model kinds it offers
    one too, and the master decides."""
    failed: list[str] = []
    faults: list[str] = []
    better: str | None = None  # path of a newer one that the master knows of
    directory = place.directory
    _tell_what_does_not_count(trainer, directory)
    after = place.highest_order()
    while True:
        over = trainer.model == "shared" and trainer.starts_over and better is None
        offer = None if over else _pick(place, better, failed, faults)
        body, path = (offer.cut, offer.path) if offer is not None else (_others(trainer, directory), "")
        memory = isinstance(offer, InMemory)
        what = f"restoring from {directory}"
        answer = _cuts.restore(trainer, "newest", body, path, failed, what, after, memory, place.readable)
        if answer.code == "ok":
            if faults:
                log.warning("checkpoints that were passed over: %s", "; ".join(faults))
            return _gone_back(trainer, answer, offer, place)
        if answer.code == "try" and answer.cut not in failed and answer.path != (better or ""):
            better = answer.path
            fault = place.unreadable(better)
            if fault is not None:
                failed.append(answer.cut)
                faults.append(fault)
                better = None
            continue
        if answer.code == "refused" and isinstance(offer, InMemory) and answer.refusal == "apart":
            place.not_everywhere(offer, answer.reason)
            continue
        if answer.code == "refused" and offer is not None and answer.refusal == "given_up":
            failed.append(offer.cut_id)
            faults.append(f"{offer.path}: {answer.reason}")
            better = None
            continue
        what = offer.path if offer is not None else str(directory)
        raise CheckpointError(f"restoring {what}: {answer.reason or answer.code}")


def _pick(place: Place, better: str | None, failed: list[str], faults: list[str]) -> Manifest | None:
    """Returns the checkpoint at `better`, or else the newest here that verifies and did not
    fail before."""
    if better is not None:
        return place.load(better)
    before = set(failed)
    for manifest in place.candidates():
        if manifest.cut_id in before:
            continue
        fault = place.fault(manifest)
        if fault is None:
            if manifest.cut_id in failed:  # it is a copy, and the other one is damaged
                failed.remove(manifest.cut_id)
            return manifest
        log.warning("a checkpoint is passed over: %s", fault)
        if manifest.cut_id not in failed:
            failed.append(manifest.cut_id)
        faults.append(fault)
    return None


def _tell_what_does_not_count(trainer: Trainer, directory: str | Bucket) -> None:
    """Logs why checkpoints in the folder do not count, so that nobody starts over without
    knowing it."""
    bad: list[str] = []
    found = _manifest.find(directory, bad)
    for fault in bad:
        log.warning("a checkpoint is passed over: %s", fault)
    others = {(str(m.fields["job"]), str(m.fields["model"])) for m in found} - {(trainer.job, trainer.model)}
    if others and not _candidates(trainer, directory):
        whose = ", ".join(f"job {job}, {model}" for job, model in sorted(others))
        log.warning(
            "%s: none of its checkpoints is of job %s, %s (they are of: %s); only a job of the same name and kind "
            "goes back to them",
            directory,
            trainer.job,
            trainer.model,
            whose,
        )


def _candidates(trainer: Trainer, directory: str | Bucket) -> list[Manifest]:
    rank = trainer.rank if trainer.model == "private" else None
    return [
        m
        for m in _manifest.find(directory)
        if m.fields["job"] == trainer.job and m.fields["model"] == trainer.model and m.rank == rank
    ]


def _verified(manifest: Manifest) -> str | None:
    """None: its files are as it says, and it survives a power failure. The folder is synced
    first, because the writer may have died before it did so, and the master tells brokers
    of a restored checkpoint."""
    if isinstance(manifest, InMemory):
        return manifest.fault()
    fault = _as_written(manifest)
    if fault is None:
        try:
            for base in _basis.bases_of(manifest):
                if (fault := _as_written(base)) is not None:
                    return f"{manifest.path}: its base does not verify: {fault}"
        except CheckpointError as error:
            return str(error)
        if isinstance(manifest, Stored):
            return None
        try:
            _durable.sync(manifest.folder)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EROFS):  # no fsync of folders, or read-only here
                return f"{manifest.folder}: it cannot be synced: {error.strerror or error}"
    return fault


def _as_written(manifest: Manifest) -> str | None:
    """None: the files are as the manifest says."""
    return manifest.fault() if isinstance(manifest, Stored) else _manifest.verify(manifest)


def _others(trainer: Trainer, directory: str | Bucket) -> dict[str, Any] | None:
    """The newest cut of another rank of a private model, for a rank that has none of its
    own. From it a master that has lost its state learns that the job has a past, and
    grants nobody that other rank's records."""
    if trainer.model != "private":
        return None
    for manifest in _manifest.find(directory):
        if manifest.fields["job"] == trainer.job and manifest.fields["model"] == trainer.model:
            return manifest.cut if manifest.rank != trainer.rank else None
    return None


def _gone_back(trainer: Trainer, answer: Answer, offer: Manifest | None, place: Place) -> Restored | None:
    """Loads what the group has chosen, which may be another rank's offer."""
    if answer.cut in ("", _cuts.NONE):
        trainer.last_step = answer.step  # 0, or what it has reported since: a reported step is closed
        trainer.not_restored = answer.reason
        if offer is not None and answer.reason:  # the user must learn that the job did not go back to it
            log.warning("%s (step %d) is not restored: %s", offer.path, offer.step, answer.reason)
        if answer.again:
            log.warning("starting over: %s", answer.again)
        return None
    chosen = offer if offer is not None and offer.cut_id == answer.cut else _chosen(trainer, answer, place)
    restored = Restored(
        step=chosen.step,
        state=_load(chosen, trainer.rank, place.only),
        path=chosen.folder if os.path.basename(chosen.path) == _manifest.FILE_NAME else _file_of(chosen.path),
        cut=Cut(chosen.cut_id, chosen.step, chosen.cut),
        manifest=chosen,
        source="peer" if isinstance(chosen, AtPeer) else "memory" if isinstance(chosen, InMemory) else "storage",
        why=place.why(chosen),
        rank=trainer.rank,
        only=place.only,
    )
    place.restored(chosen)
    log.info("restored step %d from %s: %s", restored.step, restored.source, restored.why)
    trainer.last_step = chosen.step
    if answer.again:
        log.warning("restored step %d: %s", chosen.step, answer.again)
    return restored


def _chosen(trainer: Trainer, answer: Answer, place: Place) -> Manifest:
    faults: list[str] = []
    for manifest in place.candidates():
        if manifest.cut_id == answer.cut:
            fault = place.fault(manifest)
            if fault is None:
                return manifest
            faults.append(fault)
    if not faults:
        fault = place.unreadable(answer.path) if answer.path else "it has no manifest: a framework carries it"
        if fault is None:
            return place.load(answer.path)
        faults.append(fault)
    raise CheckpointError(
        f"the group goes back to checkpoint {answer.cut} of step {answer.step}, which rank {trainer.rank} cannot read: "
        + "; ".join(faults)
    )


def _file_of(manifest: str) -> str:
    return manifest[: -len("." + _manifest.FILE_NAME)]


def _load(manifest: Manifest, rank: int, only: Iterable[str] | None = None) -> Any:
    """A rank's state. None: a framework wrote it, or that many ranks did not save. only: of
    the places with files of their own, these."""
    if isinstance(manifest, InMemory):
        tree, arrays = manifest.load()
        own = manifest.fields["state"].get("own") or {}
        return _state.build(_tree_of(tree, own, only, manifest.path), arrays)
    state = manifest.fields.get("state")
    if not isinstance(state, dict) or state.get("format") != _state.FORMAT:
        return None
    if state.get("version") not in _state.VERSIONS:
        raise CheckpointError(f"{manifest.path}: its state has version {state.get('version')}: use a newer headrace")
    if "shards" in state:
        state = state["shards"].get(str(rank))
        if state is None:
            return None
    files = _files.of_state(state, manifest.files, manifest.path)
    tree = _tree_of(state["tree"], files, only, manifest.path)
    folder = manifest.bucket.fetch(manifest, rank) if isinstance(manifest, Stored) else manifest.folder
    pickles = _pickled.found(state.get("pickles"), folder, manifest.files)
    base = _basis.base_of(manifest, rank)
    of_base = _basis.arrays_of(base, rank) if base is not None else None
    return _state.read(tree, _files.paths(folder, _files.wanted(files, only, manifest.path)), pickles, of_base)


def _tree_of(tree: Any, files: dict[str, str], only: Iterable[str] | None, where: str) -> Any:
    """The tree of a state, without the places that were not asked for."""
    gone = set(files) - set(_files.wanted(files, only, where))
    return _files.beside(tree, frozenset(gone)) if gone else tree
