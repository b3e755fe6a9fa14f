"""Checkpointer: a model's state with the exact records that are in it."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Union

from . import (
    _binding,
    _bucket,
    _cuts,
    _delta,
    _files,
    _manifest,
    _parts,
    _pickled,
    _restore,
    _state,
    _tostorage,
)
from ._bucket import Bucket
from ._covered import Covered
from ._cuts import Cut, ExactCut
from ._errors import CheckpointError
from ._every import CLOSE, Every
from ._flash import Flash, Pinned
from ._memory import Written
from ._restore import Restored
from ._saved import Saved
from ._staged import Staged
from ._trainer import Trainer, init

if TYPE_CHECKING:
    from types import TracebackType

    from ._steps import Steps
    from ._stream import Stream

log = logging.getLogger("headrace")

Path = Union[str, "os.PathLike[str]"]

SAVE_SECONDS = 600.0  # for a save, from the call to the bound manifest
PAUSE_SECONDS = 60.0  # for all trainers of a shared model to finish their steps, and the state to be copied


def _in_background(do: Callable[..., None], *args: Any) -> None:
    """Does the rest of a save in a thread. If none can be started, because there are too many or the
    interpreter ends, this thread does it."""
    try:
        threading.Thread(target=do, args=args, name="headrace-save", daemon=False).start()
    except RuntimeError:
        do(*args)


class Checkpointer:
    """Saves and restores checkpoints in a folder; each carries its cut.

    dir: the folder, the same for all ranks; or s3://bucket/prefix. stream: any stream of this process;
    default: the process's own attachment (headrace.init()). A cut spans all
    datasets of the job. keep: how many checkpoints stay; pinned ones stay in addition.
    sharded: each rank of a replicated model saves a part of its own; else rank 0
    saves and the others follow. timeout: seconds for one save. pause_timeout: the
    seconds of it for which an exact save of a shared model may let all trainers wait.

    memory: a save copies the state into memory that outlives this process. The copy goes
    to storage from there; see docs/FLASH.md. For replicated and private models. slots: the
    number of such copies, at least 2. With sharded, each rank's part lies in its own
    memory, and a save with storage waits until the one before it is on storage.

    pickle: places in the state ("model", "models.0") of objects that are no arrays: each is
    pickled into a file of its own. restore() gives a Pickled in its place, which loads the
    object when you ask it to. Not with memory=True.

    deltas: names large arrays by their places in the state ("tables.user"), for example
    embedding tables. touch() tells which rows change. Then only every full_every-th save is
    whole; the others hold the rows that were touched since it. See docs/CHECKPOINTS.md.
    With memory=True a slot holds all of the state, and the delta is made on the way to
    storage. The saves of a shared model must then be exact.

    files: places in the state ("model", "optimizer") that get files of their own:
    model.safetensors has the model's own names, and any reader of the format opens it.
    restore(only=["model"]) and headrace.load() read one file without the others.

    One save is under way at a time: the next one waits for it (with memory: only until
    it is whole in memory). The next call, and Saved, raise an error of the background work.

    A loop calls ck.save_every(100, step, state) after each step, or ck.save(step, state)
    itself. `with Checkpointer(...) as ck` closes it at the end: close() saves the last step of
    save_every(), if no save has it, and waits for the save under way.
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
        memory: bool = False,
        slots: int = 2,
        pickle: Iterable[str] = (),
        deltas: Iterable[str] = (),
        full_every: int = 10,
        files: Iterable[str] = (),
    ) -> None:
        if not isinstance(dir, (str, os.PathLike)) or (stream is not None and not hasattr(stream, "_trainer")):
            own = "; a Loader's stream is loader.stream" if hasattr(stream, "stream") else ""
            raise TypeError(
                f"Checkpointer({dir!r}, {stream!r}): the folder comes first and then a stream, as in "
                f'Checkpointer("checkpoints", headrace.dataset("clicks").batches(1024)){own}'
            )
        if keep < 1:
            raise ValueError(f"keep={keep}; at least the newest checkpoint stays")
        if not timeout > 0 or not pause_timeout > 0:
            raise ValueError(f"timeout={timeout}, pause_timeout={pause_timeout}; they are seconds, more than 0")
        where = os.fspath(dir)
        self.dir = _bucket.check(where) if _bucket.is_url(where) else os.path.abspath(where)
        self.keep = keep
        self._trainer: Trainer = stream._trainer if stream is not None else init()
        self._sharded = sharded and self._trainer.model == "replicated"
        if sharded and self._trainer.model == "shared":
            raise ValueError("sharded=True is for a replicated model: the ranks of a shared one hold no parts of it")
        self._timeout = timeout
        self._pause_timeout = pause_timeout
        self._last: Saved | None = None
        self._open: list[Saved] = []  # saves whose end nobody has seen
        self._pickles = _pickled.names(pickle)
        if memory and self._pickles:
            raise ValueError("memory=True and pickle= together are not supported: memory holds arrays only")
        self._own = _files.places(files)
        self._deltas = _delta.Deltas(deltas, full_every, self.dir, self._has, self._own)
        self._at: str | Bucket = self.dir
        if _bucket.is_url(self.dir):
            self._at = self._in_bucket()
        self._flash: Flash | None = None
        if memory:
            self._flash = self._in_memory(slots)
        self._cuts: dict[int, Cut] = {}
        self._after: int | None = None  # the highest order in dir, once that was looked at
        self._covered = Covered(self._trainer, self.dir)
        self._every = Every(self._trainer.last_step)
        self._trainer.before_close(self._finish)
        self._trainer.folders[self.dir] = self._has

    def _in_bucket(self) -> Bucket:
        if self._pickles:
            raise ValueError(f"{self.dir}: pickle= is not supported in a bucket yet: save to a folder")
        return Bucket(self._trainer, self.dir)

    def _has(self, path: str) -> bool:
        """A manifest lies at a path of dir."""
        return self._at.exists(path) if isinstance(self._at, Bucket) else os.path.exists(path)

    def _in_memory(self, slots: int) -> Flash:
        if slots < 2:
            raise ValueError(f"slots={slots}; one is written while another one stays whole")
        if self._trainer.model not in ("replicated", "private"):
            raise ValueError("memory=True is for a replicated or private model: a shared one outlives its trainers")
        return Flash(self, slots)

    def prepare(self, state: Any) -> None:
        """Allocates memory for such a state, in the background, so that the first save is as
        fast as any other. Needed only if no earlier checkpoint tells the size. Does nothing
        without memory=True."""
        if self._flash is not None:
            self._flash.prepare(state() if callable(state) else state)

    def touch(self, name: str, rows: Any) -> None:
        """A step changes these rows of an array that deltas= names: whole numbers from 0, in
        any order, repeats allowed. Call it for every step. If ranks train one model, give the
        rows of all ranks. With a shared model, call it in the function that gives the state,
        with all rows that the model's server has changed.

        The table may have grown: new rows are saved in any case. If the table does not have a
        touched row at the next save, that save raises CheckpointError. Raises ValueError for a
        name that deltas= does not have, IndexError for a row below 0, TypeError.
        """
        self._deltas.touch(name, rows)

    # Saving.

    def save(self, step: int, state: Any, *, exact: bool | None = None, storage: bool = True) -> Saved:
        """Saves the state as of step, with the records that are in it.

        step: the last step that this rank has reported, else ValueError. state: nested
        dicts, lists and tuples of numpy arrays, torch tensors, numbers, text, bytes
        and None; else TypeError. Or a function that returns such a state, called when
        it is time to copy it. Returns when the state is copied; Saved tells the rest.
        Waits for an earlier save, never for another rank's next batch.

        In a replicated model rank 0 saves; the other ranks call save() as well (it
        checks their step) and follow.

        With memory=True each rank copies its state into a slot, and save() returns.
        storage=False: the checkpoint stays in memory only. Otherwise it is written to
        storage from the slot. A save never waits for storage: if the next save comes
        before that, the newer one is written.

        Others change a shared model meanwhile. exact=True: all trainers finish their
        steps and wait (in next()), while the state is copied and the cut is frozen.
        Then they go on, and the files are written. This is the default if state is a
        function, as in ``save(step, server.pull)``. If state is no function, it must be
        the model itself, in shared memory. exact=False, the default for such a state:
        the cut is frozen first and the state copied after it, so the model holds at
        least the cut, and perhaps more.

        Raises ValueError, TypeError, Fenced, and CheckpointError. If an exact save
        fails, the error names the ranks that did not wait in time, or the reason. The
        error of an earlier save is raised, too.
        """
        trainer, flash = self._trainer, self._flash
        trainer.check()
        if flash is None and not storage:
            raise ValueError("storage=False keeps a checkpoint in memory only: make the Checkpointer with memory=True")
        # All ranks must write the same sharded checkpoints, so none takes the place of one that waits.
        self._finish(storage=flash is None or (self._sharded and storage))
        self._raise_unseen()
        step = _cuts.check_step(trainer, step)
        deadline = time.monotonic() + self._timeout
        self._look()
        if flash is not None:
            written = flash.copy(state() if callable(state) else state)
            if written is not None or not storage:
                return self._to_memory(flash, step, written, deadline, storage)
            self._finish()
        follows = trainer.model == "replicated" and trainer.rank != 0 and not self._sharded
        cut: Cut | None = None
        captured: _state.Captured | Staged | None = None
        if trainer.model == "shared" and (callable(state) if exact is None else exact):
            cut, captured = self._paused(step, state, deadline)
        else:
            if trainer.model == "shared":
                if self._deltas.names:
                    raise ValueError(
                        "deltas= of a shared model: others may change rows while the state is copied, and touch() "
                        "cannot know them. Save exactly: save(step, pull), with a function that gives the state"
                    )
                if exact is None:
                    self._covered.inexact()
                cut = self._ask(step, deadline, _cuts.new_id())
            if not follows:
                captured = self._capture(state, step)
            self._reached("captured")
        saved = self._begun(step)
        _in_background(self._run, saved, cut, captured, deadline)
        return saved

    def save_every(self, steps: int, step: int, state: Any, *, exact: bool | None = None) -> Saved | None:
        """Saves each `steps` steps, and the last step when the Checkpointer is closed.

            with headrace.Checkpointer("checkpoints", stream) as ck:
                ...
                for b in stream:
                    model.learn(b)
                    step = stream.step(step + 1)
                    ck.save_every(100, step, model.state)

        Call it after each step. It saves as save(step, state) does if a multiple of `steps`
        has been passed since the last save to storage, or since the checkpoint that was
        restored. So a restart moves no save: after a restore of step 150 the next ones are
        200 and 300. Returns Saved, or None if no save was due.

        close() and a `with` that ends without an error save the state of the last call, if
        that step is in no save yet and is still the last one that this rank has reported. If
        the `with` ends with an error, nothing more is saved. A state that is no function must
        not change between the last call and close(); a function is called then.

        In a replicated model every rank calls it, with the same steps. Raises what save()
        raises, and at any step the error of an earlier save.
        """
        self._every.check(steps)
        self._trainer.check()
        self._raise_unseen()
        step = _cuts.check_step(self._trainer, step)
        self._covered.how = CLOSE
        if self._every.due(steps, step):
            return self.save(step, state, exact=exact)
        self._every.later(step, lambda: self.save(step, state, exact=exact))
        return None

    def _capture(self, state: Any, step: int) -> _state.Captured | Staged:
        state = state() if callable(state) else state
        bucket = self._at if isinstance(self._at, Bucket) else None
        if self._deltas.names:
            captured = self._deltas.capture(step, state, self._pickles, copy=bucket is None)
        else:
            captured = _state.capture(state, self._pickles, copy=bucket is None, own=self._own)
        return captured if bucket is None else Staged(bucket.slots, self.dir, self._trainer.rank, captured)

    def _begun(self, step: int, storage: bool = True) -> Saved:
        if storage:
            self._every.saved(step)
        saved = self._last = Saved(step, self._covered.now)
        self._open.append(saved)
        return saved

    def _to_memory(self, flash: Flash, step: int, written: Written | None, deadline: float, storage: bool) -> Saved:
        saved = self._begun(step, storage)
        if written is None:
            saved._end(CheckpointError(f"the save of step {step}: there is no room in memory, and storage=False"))
            saved._seen = True  # that was logged; training goes on
            return saved
        self._reached("captured")
        _in_background(self._run_memory, flash, saved, written, deadline, storage)
        return saved

    def _run_memory(self, flash: Flash, saved: Saved, written: Written, deadline: float, storage: bool) -> None:
        """Makes the copy a checkpoint, then has it written to storage."""
        try:
            cut = self._ask(saved.step, deadline, _cuts.new_id(), memory=True)
            saved.cut, saved.exact = cut.id, True
            self._reached("frozen")
            slot = flash.complete(written, cut, saved.step)
            self._reached("sealed")
        except BaseException as failure:
            flash.memory.give_up(written)
            log.warning("the save of step %d failed: %s", saved.step, failure)
            saved._end(failure)
            return
        saved.memory = slot
        self._covered.saved(saved.rows)
        mine = self._trainer.model == "private" or self._trainer.rank == 0
        if mine and written.replaced is not None and flash.only_in_memory(written.replaced):
            _cuts.forget(self._trainer, written.replaced, "its slot in memory was used again")
        if not storage:
            saved.path = slot
            saved._end(None)
            return
        try:
            flash.persist(saved, slot, int(cut.body["order"]))
        except BaseException as failure:
            saved._end(failure)
        saved._held.set()

    def _persist(self, pinned: Pinned) -> str:
        """Writes a checkpoint from memory to storage. Gives its folder."""
        return _tostorage.persist(self, pinned)

    def _by_agent(self, pinned: Pinned, deadline: float) -> bool:
        """The agent has written the checkpoint to storage. False: it cannot; this process has to."""
        why = _cuts.persist(self._trainer, pinned.cut.id, pinned.path, deadline)
        if why:
            log.warning("the trainer writes the checkpoint of step %d itself: %s", pinned.step, why)
        return not why

    def _run(self, saved: Saved, cut: Cut | None, captured: _state.Captured | Staged | None, deadline: float) -> None:
        error: BaseException | None = None
        try:
            cut = cut or self._ask(saved.step, deadline, _cuts.new_id())
            saved.cut, saved.exact = cut.id, bool(cut.body.get("exact", True))
            self._reached("frozen")
            folder = os.path.join(self.dir, _manifest.folder_name(saved.step, cut.body.get("rank"), cut.id))
            if captured is None:
                _parts.await_manifest(self, folder, saved.step, deadline)
            elif _tostorage.write(self, cut, folder, captured, deadline):
                self._deltas.saved(folder, cut.id)
            else:
                self._deltas.failed()
            saved.path = folder
            self._covered.saved(saved.rows)
        except BaseException as failure:
            error = failure
            log.warning("the save of step %d failed: %s", saved.step, failure)
            self._deltas.failed()
        saved._end(error)

    def _paused(self, step: int, state: Any, deadline: float) -> tuple[Cut, _state.Captured | Staged]:
        """Copies a shared model's state while no trainer changes it, and freezes the
        cut; then all go on."""
        trainer, cut = self._trainer, _cuts.new_id()
        trainer.check_stepped()
        _cuts.pause(trainer, cut, min(deadline, time.monotonic() + self._pause_timeout))
        try:
            self._reached("paused")
            captured = self._capture(state, step)
            self._reached("captured")
            return self._ask(step, deadline, cut, exact=True), captured
        except BaseException as error:
            _cuts.forget(trainer, cut, f"its save attempt ended: {error!r}")  # lets the others go on
            raise

    def _ask(self, step: int, deadline: float, cut: str, exact: bool = False, memory: bool = False) -> Cut:
        rank = self._trainer.rank if self._trainer.model == "private" else None
        folder = os.path.join(self.dir, _manifest.folder_name(step, rank, cut))
        path = os.path.join(folder, _manifest.FILE_NAME)
        after = self._look()
        asked = _cuts.ask(self._trainer, step, deadline, cut=cut, path=path, exact=exact, after=after, memory=memory)
        return self._frozen(asked)

    def _look(self) -> int:
        """The highest order of the checkpoints in dir. A master that has lost its state does
        not know them, and the cuts that it freezes must have higher orders."""
        if self._after is None:
            self._after = _restore.highest_order(self._at, self._flash)
        return self._after

    def _frozen(self, cut: Cut) -> Cut:
        self._after = max(self._look(), int(cut.body.get("order", 0)))
        return cut

    # Checkpoints that a framework writes.

    def cut(self, step: int | None = None) -> Cut:
        """Freezes the cut at this rank's last reported step, which must be `step`.

        For a checkpoint that a framework writes: take the cut, have the file written,
        then bind() the two. Waits until all ranks have reported the step. Raises
        ValueError, CheckpointError at the deadline, Fenced.
        """
        self._trainer.check()
        self._raise_unseen()
        number = _cuts.check_step(self._trainer, step)
        deadline = time.monotonic() + min(self._timeout, _cuts.CUT_SECONDS)
        cut = self._frozen(_cuts.ask(self._trainer, number, deadline, after=self._look()))
        self._cuts[number] = cut
        self._covered.cut(number, self.keep)
        while len(self._cuts) > self.keep:
            del self._cuts[min(self._cuts)]
        return cut

    def exact(self, step: int | None = None) -> AbstractContextManager[ExactCut]:
        """The model does not change inside the `with`, and the cut is exactly what is in it.

            with ck.exact(step) as cut:
                cut.path = saver.save(session, "model/model.ckpt", global_step=step)
            ck.bind(cut, files=[cut.path + ".index", cut.path + ".data-00000-of-00001"])

        For a framework that writes its own checkpoint of a shared model: all trainers
        finish their steps and wait until the block has ended; the cut is frozen then. For
        the other model kinds the cut is the one of `step`, as cut() gives it, and the
        calling rank must not train meanwhile. step: as in save().

        If the block raises, there is no cut. Set `cut.path` to the checkpoint's path, as
        for bind(): by the path the master tells a cut that was never bound from a cut that
        a framework carries. Raises as save() does.
        """
        return _binding.exact(self, step)

    def bind(
        self,
        cut_or_step: Cut | ExactCut | int,
        path: Path | None = None,
        *,
        files: Iterable[Path] | None = None,
        step: int | None = None,
    ) -> str:
        """A checkpoint at path, a file or a folder, holds the model as of the cut.

        Syncs it, writes its manifest (in the folder, or beside the file) and tells the
        master. Returns the manifest's path. One rank calls it, when all files are there.
        Instead of a cut, a step may be given: the step of a cut() of this object, or one
        for which a cut can still be asked. Links are refused, and so are names that no
        manifest may have.

        files: these files in one folder are the checkpoint, as a framework writes it
        under a prefix. The manifest lies beside them, at
        ``PATH.headrace-manifest.json``. path is the prefix; it may be left out if
        `cut.path` is set. Restored.path gives it back. step: with a shared model, the
        step of the framework, which the manifest then has (`ckpt list`, restore(step)).

        Raises ValueError for a step that this rank has not reported, OSError,
        CheckpointError, Fenced.
        """
        return _binding.bind(self, cut_or_step, path, files, step)

    # Restoring.

    def restore(self, step: int | str = "newest", *, only: Iterable[str] | None = None) -> Restored | None:
        """Goes back to a checkpoint: its state, and the input without its records.

        step: "newest" (the newest whose files verify here), a step, or "start". Returns
        None if there is no checkpoint, or if "start" was asked for: everything is pending.

        With memory=True the newest may lie in this node's memory, if all ranks have it
        in memory; Restored.source and .why say which one was taken. Arrays that come from
        memory are the slot's own memory. While they live, the slot cannot be written
        again: copy them into the model, and release them.

        only: of the places that files= had named, load only these. Parts of the state
        without a file of their own are always loaded.

        Collective in a replicated model: every rank calls it, once for each start of
        the group. The first call fixes the checkpoint for all, and no rank gets a batch
        before all have called. private: each rank goes back alone. shared: the whole job
        goes back.

        Raises CheckpointError, Fenced.
        """
        self._trainer.check()
        self._finish()
        self._raise_unseen()
        self._deltas.reset()
        restored = _restore.restore(self._trainer, self._at, step, self._flash, only)
        in_memory = restored is not None and restored.source != "storage"  # and perhaps nowhere else
        self._every = Every(0 if in_memory else self._trainer.last_step)
        if self._flash is not None:
            self._flash.warm(restored is not None)
        return restored

    # The end.

    def close(self) -> None:
        """Saves what save_every() has left, waits for the save that is under way, and raises its
        error if it failed."""
        try:
            self._every.last(self._trainer.last_step)
        finally:
            self._finish()
            self._end_memory(ended=True)
        self._raise_unseen()

    def _end_memory(self, ended: bool) -> None:
        flash, self._flash = self._flash, None
        if flash is not None:
            flash.close(ended)

    def __repr__(self) -> str:
        kinds = "sharded, " * self._sharded + "in memory too, " * (self._flash is not None)
        last = "no save yet" if self._last is None else f"last {self._last!r}"
        return f"Checkpointer({self.dir!r}, {kinds}rank {self._trainer.rank}: {last})"

    def __enter__(self) -> Checkpointer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        else:
            self._finish()
            self._end_memory(ended=False)

    def _finish(self, storage: bool = True) -> None:
        """Waits for the save under way, which has a deadline of its own. storage=False:
        only until it is whole in memory."""
        if self._last is not None:
            (self._last._over if storage else self._last._held).wait()
        if storage and self._flash is not None:
            self._flash.wait()

    def _alive(self) -> bool:
        """The save under way may yet be whole in memory."""
        last = self._last
        return last is not None and (not last._held.is_set() or last.in_memory)

    def _raise_unseen(self) -> None:
        errors = [error for saved in self._open if (error := saved._unseen()) is not None]
        self._open = [saved for saved in self._open if not saved.done]
        if errors:
            raise errors[0]

    def _reached(self, point: str) -> None:
        """Called at each point of a save at which a crash makes a difference: paused (all
        yields are paused), copying (half of the state is in memory), captured, frozen, sealed
        (the state is whole in memory), staged (its delta is, too), files, part, manifest (not
        yet renamed), renamed, bound. For tests, which override it."""
