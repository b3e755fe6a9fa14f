"""Checkpointer: a model's state with the exact records that are in it."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Any, Union

from . import _cuts, _durable, _manifest, _restore, _retain, _state
from ._cuts import Cut
from ._errors import CheckpointError, Fenced, HeadraceError
from ._restore import Restored
from ._saved import Saved
from ._trainer import Trainer, init

if TYPE_CHECKING:
    from types import TracebackType

    from ._steps import Steps
    from ._stream import Stream

log = logging.getLogger("headrace")

Path = Union[str, "os.PathLike[str]"]

SAVE_SECONDS = 600.0  # for a save, from the call to the bound manifest
PAUSE_SECONDS = 60.0  # for all trainers of a shared model to finish their steps, and the state to be copied
_LOOK = 0.02  # seconds between two looks for what other ranks write, growing
_LOOK_MOST = 0.5


class Checkpointer:
    """Saves and restores checkpoints in a folder; each carries its cut.

    dir: the folder, the same for all ranks. stream: any stream of this process;
    default: the process's own attachment (headrace.init()). A cut spans all
    datasets of the job. keep: how many checkpoints stay; pinned ones stay besides.
    sharded: each rank of a replicated model saves a part of its own; else rank 0
    saves and the others follow. timeout: seconds for one save. pause_timeout: seconds
    of it for which an exact save of a shared model may let all trainers wait.

    One save is under way at a time: the next one waits for it. What goes wrong
    behind the trainer's back is raised by the next call, and by Saved.
    """

    def __init__(
        self,
        dir: Path,
        stream: Stream | Steps | None = None,
        *,
        keep: int = 3,
        sharded: bool = False,
        timeout: float = SAVE_SECONDS,
        pause_timeout: float = PAUSE_SECONDS,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep={keep}; at least the newest checkpoint stays")
        if not timeout > 0 or not pause_timeout > 0:
            raise ValueError(f"timeout={timeout}, pause_timeout={pause_timeout}; they are seconds, more than 0")
        self.dir = os.path.abspath(os.fspath(dir))
        self.keep = keep
        self._trainer: Trainer = stream._trainer if stream is not None else init()
        self._sharded = sharded and self._trainer.model == "replicated"
        if sharded and self._trainer.model == "shared":
            raise ValueError("sharded=True is for a replicated model: the ranks of a shared one hold no parts of it")
        self._timeout = timeout
        self._pause_timeout = pause_timeout
        self._last: Saved | None = None
        self._cuts: dict[int, Cut] = {}
        self._after: int | None = None  # the highest order in dir, once that was looked at
        self._trainer.before_close(self._finish)

    # Saving.

    def save(self, step: int, state: Any, *, exact: bool | None = None) -> Saved:
        """Saves the state as of step, with the records that are in it.

        step: the last step that this rank has said, else ValueError. state: nested
        dicts, lists and tuples of numpy arrays, torch tensors, numbers, text, bytes
        and None; else TypeError. Or a function that gives it, which is called when
        it is to be copied. Returns when it is copied; of the rest Saved tells. Waits
        for an earlier save, never for another rank's next batch.

        In a replicated model rank 0 saves; the other ranks call save() as well (it
        checks their step) and follow.

        A shared model is changed by others meanwhile. exact=True: all trainers
        finish their steps and wait (their next() does), while the state is copied
        and the cut is frozen; then they go on, and the files are written. The
        default where state is a function, as in ``save(step, server.pull)``. A
        state that is no function must be the model itself then, in shared memory.
        exact=False, the default for it: the cut is frozen and the state copied
        then, so that the model holds at least the cut, and perhaps more.

        Raises ValueError, TypeError, Fenced, CheckpointError (of an exact save: who
        did not wait in time, or what broke it), and what an earlier save failed of.
        """
        trainer = self._trainer
        trainer.check()
        self._finish()
        self._raise_unseen()
        step = _cuts.check_step(trainer, step)
        deadline = time.monotonic() + self._timeout
        self._look()
        follows = trainer.model == "replicated" and trainer.rank != 0 and not self._sharded
        cut: Cut | None = None
        captured: _state.Captured | None = None
        if trainer.model == "shared" and (callable(state) if exact is None else exact):
            cut, captured = self._paused(step, state, deadline)
        else:
            if trainer.model == "shared":
                cut = self._ask(step, deadline, _cuts.new_id())
            if not follows:
                captured = _capture(state)
            self._reached("captured")
        saved = self._last = Saved(step)
        threading.Thread(
            target=self._run, args=(saved, cut, captured, deadline), name="headrace-save", daemon=False
        ).start()
        return saved

    def _run(self, saved: Saved, cut: Cut | None, captured: _state.Captured | None, deadline: float) -> None:
        error: BaseException | None = None
        try:
            cut = cut or self._ask(saved.step, deadline, _cuts.new_id())
            saved.cut, saved.exact = cut.id, bool(cut.body.get("exact", True))
            self._reached("frozen")
            folder = os.path.join(self.dir, _manifest.folder_name(saved.step, cut.body.get("rank"), cut.id))
            if captured is not None:
                self._write(saved, cut, folder, captured, deadline)
            else:
                self._await_manifest(folder, saved.step, deadline)
            saved.path = folder
        except BaseException as failure:
            error = failure
            log.warning("the save of step %d failed: %s", saved.step, failure)
        saved._end(error)

    def _paused(self, step: int, state: Any, deadline: float) -> tuple[Cut, _state.Captured]:
        """Copies a shared model's state while no trainer changes it, and freezes the
        cut; then all go on."""
        trainer, cut = self._trainer, _cuts.new_id()
        trainer.check_stepped()
        _cuts.pause(trainer, cut, min(deadline, time.monotonic() + self._pause_timeout))
        try:
            self._reached("paused")
            captured = _capture(state)
            self._reached("captured")
            return self._ask(step, deadline, cut, exact=True), captured
        except BaseException as error:
            _cuts.forget(trainer, cut, f"its save attempt ended: {error!r}")  # lets the others go on
            raise

    def _ask(self, step: int, deadline: float, cut: str, exact: bool = False) -> Cut:
        rank = self._trainer.rank if self._trainer.model == "private" else None
        folder = os.path.join(self.dir, _manifest.folder_name(step, rank, cut))
        path = os.path.join(folder, _manifest.FILE_NAME)
        after = self._look()
        return self._frozen(_cuts.ask(self._trainer, step, deadline, cut=cut, path=path, exact=exact, after=after))

    def _look(self) -> int:
        """The highest order of the checkpoints in dir. A master that has lost its state
        does not know of them, and what it freezes has to be newer."""
        if self._after is None:
            self._after = _manifest.highest_order(self.dir)
        return self._after

    def _frozen(self, cut: Cut) -> Cut:
        self._after = max(self._look(), int(cut.body.get("order", 0)))
        return cut

    def _write(self, saved: Saved, cut: Cut, folder: str, captured: _state.Captured, deadline: float) -> None:
        path = os.path.join(folder, _manifest.FILE_NAME)
        rank = self._trainer.rank
        # A replicated step that is saved again has the same cut, and so the same folder.
        again = os.path.lexists(path)
        if again and self._sharded:
            self._bind_again(cut, folder, path, deadline)
            return
        name = _manifest.free_name(folder, f"state-rank-{rank}" if self._sharded else "state", ".safetensors")
        try:
            _durable.make_folder(folder)
            files, state = self._write_state(folder, name, saved.step, captured)
            self._reached("files")
            if self._sharded:
                self._publish_part(folder, saved.step, cut, files, state)
                if rank != 0:
                    self._await_manifest(folder, saved.step, deadline)
                    return
                files, state = self._await_parts(folder, cut, deadline)
            temp = _manifest.prepare(path, cut.id, _manifest.manifest_of(cut.body, saved.step, files, state))
            self._reached("manifest")
            if time.monotonic() > deadline:
                raise CheckpointError(f"the save of step {saved.step} took longer than {self._timeout:.0f} s")
            self._trainer.check()
            _manifest.publish(temp, path)
        except BaseException as error:
            if again:
                _manifest.remove_unlisted(path, [name])
            else:
                self._give_up(cut, folder, path, error)
            raise
        self._reached("renamed")
        # From here on the checkpoint counts, whatever happens to us.
        if again:
            _manifest.remove_unlisted(path, os.listdir(folder))
        _cuts.bind(self._trainer, cut.id, path, max(deadline, time.monotonic() + _cuts.CALL_SECONDS))
        self._reached("bound")
        _retain.retain(self._trainer, self.dir, self.keep, path, self._timeout)

    def _bind_again(self, cut: Cut, folder: str, path: str, deadline: float) -> None:
        """Of a sharded checkpoint that is there: what each rank has saved at a step is
        its state at that step. Its parts are not written over each other."""
        log.info("%s is there already: a step is not saved twice", path)
        _durable.sync(folder)
        if self._trainer.rank == 0:
            _cuts.bind(self._trainer, cut.id, path, max(deadline, time.monotonic() + _cuts.CALL_SECONDS))

    def _write_state(
        self, folder: str, name: str, step: int, captured: _state.Captured
    ) -> tuple[list[dict[str, Any]], Any]:
        """Writes the arrays; gives the manifest's files and state."""
        state: dict[str, Any] = {"format": _state.FORMAT, "version": _state.VERSION, "tree": captured.tree}
        if not captured.arrays:
            return [], state
        _state.write(captured, os.path.join(folder, name), {"step": str(step)})
        return [_manifest.describe(folder, name)], {**state, "file": name}

    def _give_up(self, cut: Cut, folder: str, path: str, error: BaseException) -> None:
        """Ends a save attempt: no manifest will come. Parts of other ranks may stay."""
        if os.path.exists(path):
            return  # the rename was done: it counts
        try:
            if not self._sharded:
                _manifest.remove_folder(folder)
        except OSError as more:
            log.warning("%s: what is left of a save that failed: %s", folder, more)
        try:
            if not isinstance(error, Fenced) and (self._trainer.rank == 0 or not self._sharded):
                _cuts.drop(self._trainer, cut.id, f"its save failed: {error}")
        except HeadraceError as more:
            log.warning("the cut of a save that failed was not dropped: %s", more)

    # Saves of several ranks.

    def _publish_part(self, folder: str, step: int, cut: Cut, files: list[dict[str, Any]], state: Any) -> None:
        rank = self._trainer.rank
        path = os.path.join(folder, _manifest.part_name(rank))
        fields = {
            "format": _manifest.PART_FORMAT,
            "version": _manifest.VERSION,
            "cut": cut.id,
            "step": step,
            "rank": rank,
            "world_size": cut.body["world_size"],
            "files": files,
            "state": state,
        }
        _manifest.publish(_manifest.prepare(path, cut.id, fields), path)
        self._reached("part")

    def _await_parts(self, folder: str, cut: Cut, deadline: float) -> tuple[list[dict[str, Any]], Any]:
        """All ranks' files and states. Raises CheckpointError at the deadline."""
        world = int(cut.body["world_size"])
        missing = list(range(world))
        parts: dict[int, dict[str, Any]] = {}
        for _ in self._looks(deadline):
            for rank in list(missing):
                try:
                    part = _manifest.load_part(os.path.join(folder, _manifest.part_name(rank)))
                except FileNotFoundError:
                    continue
                if part["cut"] == cut.id and part["rank"] == rank and part["world_size"] == world:
                    parts[rank] = part
                    missing.remove(rank)
            if not missing:
                files = [dict(f, rank=rank) for rank in range(world) for f in parts[rank]["files"] or ()]
                shards = {str(rank): parts[rank].get("state") for rank in range(world)}
                return files, {"format": _state.FORMAT, "version": _state.VERSION, "shards": shards}
        raise CheckpointError(
            f"{folder}: no part of rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} came within "
            f"{self._timeout:.0f} s: every rank saves each sharded checkpoint, and sees the same folder"
        )

    def _await_manifest(self, folder: str, step: int, deadline: float) -> None:
        path = os.path.join(folder, _manifest.FILE_NAME)
        for _ in self._looks(deadline):
            if os.path.exists(path):
                _manifest.load(path)
                return
        raise CheckpointError(
            f"{path}: rank 0 did not write it within {self._timeout:.0f} s: its save of step {step} failed, or this "
            "rank does not see its folder"
        )

    def _looks(self, deadline: float) -> Any:
        """Yields now and then until the deadline. Raises what ends this process's part."""
        pause = _LOOK
        while True:
            self._trainer.check()
            yield
            if time.monotonic() > deadline:
                return
            time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
            pause = min(2 * pause, _LOOK_MOST)

    # Checkpoints that a framework writes.

    def cut(self, step: int | None = None) -> Cut:
        """Freezes the cut at this rank's last stepped step, which must be `step`.

        For a checkpoint that somebody else writes: take the cut, have the file
        written, then bind() the two. Waits until all ranks have reported the step.
        Raises ValueError, CheckpointError at the deadline, Fenced.
        """
        self._trainer.check()
        self._raise_unseen()
        number = _cuts.check_step(self._trainer, step)
        deadline = time.monotonic() + min(self._timeout, _cuts.CUT_SECONDS)
        cut = self._frozen(_cuts.ask(self._trainer, number, deadline, after=self._look()))
        self._cuts[number] = cut
        while len(self._cuts) > self.keep:
            del self._cuts[min(self._cuts)]
        return cut

    def bind(self, cut_or_step: Cut | int, path: Path) -> str:
        """A checkpoint at path, a file or a folder, holds the model as of the cut.

        Syncs it, writes its manifest (in the folder, or beside the file) and has the
        master know. Gives the manifest's path. One rank calls it, when all files are
        there. A step is that of a cut() of this object, else of a cut that can still
        be asked for. Links are refused, and names that no manifest may have. Raises
        ValueError of a step that this rank has not said, OSError, CheckpointError,
        Fenced.
        """
        self._trainer.check()
        self._raise_unseen()
        deadline = time.monotonic() + self._timeout
        if isinstance(cut_or_step, Cut):
            cut = cut_or_step
        elif cut_or_step in self._cuts:
            cut = self._cuts[cut_or_step]
        elif cut_or_step > self._trainer.last_step:
            last = self._trainer.last_step
            raise ValueError(f"step {cut_or_step}, but the last step that this rank has said is {last}")
        else:
            cut = self._frozen(_cuts.ask(self._trainer, cut_or_step, deadline, after=self._look()))
        where = os.path.abspath(os.fspath(path))
        manifest, files = _manifest.describe_all(where)
        temp = _manifest.prepare(manifest, cut.id, _manifest.manifest_of(cut.body, cut.step, files))
        self._reached("manifest")
        _manifest.publish(temp, manifest)
        self._reached("renamed")
        _cuts.bind(self._trainer, cut.id, manifest, deadline)
        self._reached("bound")
        return manifest

    # Restoring.

    def restore(self, step: int | str = "newest") -> Restored | None:
        """Goes back to a checkpoint: its state, and the input without its records.

        step: "newest" (the newest whose files verify here), a step, or "start".
        None: there is none, or "start" was asked for: everything is pending.

        Collective in a replicated model: every rank calls it, once for each start of
        the group; the first call fixes the checkpoint for all, and no rank gets a
        batch before all have called. private: each rank goes back alone. shared: the
        whole job does.

        Raises CheckpointError, Fenced.
        """
        self._trainer.check()
        self._finish()
        self._raise_unseen()
        return _restore.restore(self._trainer, self.dir, step)

    # The end.

    def close(self) -> None:
        """Waits for the save that is under way, and raises what it failed of."""
        self._finish()
        self._raise_unseen()

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._finish()
        if kind is None:
            self._raise_unseen()

    def _finish(self) -> None:
        if self._last is not None:
            self._last._over.wait()  # it has a deadline of its own

    def _raise_unseen(self) -> None:
        error = self._last._unseen() if self._last is not None else None
        if error is not None:
            raise error

    def _reached(self, point: str) -> None:
        """Called at each point of a save at which a crash makes a difference:
        paused (all yields are), captured, frozen, files, part, manifest (not yet renamed), renamed, bound.
        For tests, which override it."""


def _capture(state: Any) -> _state.Captured:
    return _state.capture(state() if callable(state) else state)
