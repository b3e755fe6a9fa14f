"""Checkpoints, saved in each of the possible ways. The journal says what became of them: SAVED when a
checkpoint counts, BOUND when it is this rank's model.

    save      Checkpointer.save; in memory too, if the run has that
    bind      Checkpointer.cut, a file that we write, Checkpointer.bind
    carried   Stream.state_dict in a file of ours, without a manifest
"""

import contextlib
import json
import os
import struct
import threading
import time

import headrace
from headrace import _manifest

from .journal import BOUND, FAILED_SAVE, HELD, RESTORED, SAVED, cfg, rnd, signed, write
from .sums import from_bytes, to_bytes
from .traps import reached

PATIENCE = 300  # seconds, for the last save: a process that it needs may be killed again and again

SOURCES = ("storage", "memory", "peer")  # where a restored checkpoint came from


class Checkpointer(headrace.Checkpointer):
    binding = None  # the cut of the bind() that is under way
    captured = 0  # when the state of the current save was copied
    pinned = None  # the slot that is being written to storage

    def _reached(self, point):
        if point == "captured":
            self.captured = time.monotonic_ns()
        if point == "sealed":
            wrote(HELD, self._last.step, self._last.cut, self._after)
        if point in ("renamed", "bound"):
            one = self.binding or (self.pinned.cut if self.pinned else None)
            cut, step = (one.id, one.step) if one else (self._last.cut, self._last.step)
            if point == "renamed" and not self.binding:
                self.archive(step, cut)
            wrote(SAVED if point == "renamed" else BOUND, step, cut, self.captured)
        reached(point)

    def _persist(self, pinned):
        self.pinned = pinned
        # At a random moment of it: the agent writes while we wait.
        threading.Timer(rnd.random() * 0.03, reached, ("persist",)).start()
        try:
            return super()._persist(pinned)
        finally:
            self.pinned = None

    def _by_agent(self, pinned, deadline):
        return rnd.random() < 0.8 and super()._by_agent(pinned, deadline)

    def archive(self, step, cut):
        """Links the checkpoint into the archive, where retention does not find it. The harness looks only
        from time to time, and might miss it."""
        name = _manifest.folder_name(step, self._trainer.rank if self._trainer.model == "private" else None, cut)
        folder = os.path.join(cfg["archive"], name)
        os.makedirs(folder, exist_ok=True)
        for file in sorted(os.listdir(os.path.join(self.dir, name)), key=lambda file: file == _manifest.FILE_NAME):
            with contextlib.suppress(FileExistsError):
                os.link(os.path.join(self.dir, name, file), os.path.join(folder, file))


def wrote(kind, step, cut, captured=0):
    write(kind, cfg["server_life"], step, signed(cut), struct.pack("<q", captured))


class Saving:
    """When to save, how, and what became of it."""

    def __init__(self, trainer):
        self.trainer = trainer
        self.ck = Checkpointer(
            cfg["checkpoints"],
            keep=cfg["keep"],
            sharded=cfg["sharded"],
            timeout=cfg["save_timeout"],
            memory=cfg["memory"],
        )
        self.writes = trainer.model != "replicated" or trainer.rank == 0  # whether this rank writes files of its own
        self.ways = {"save": self._save, "bind": self._bind, "carried": self._carry}
        self.next = time.monotonic() + cfg["save_every"] * rnd.random()
        self.new = False  # the model is not on storage: it has stepped since the last save, or is in memory only
        self.going = None  # the newest save to storage that was not waited for

    def due(self):
        return time.monotonic() >= self.next

    def save(self, step, state, stream, wait=False):
        """Saves what state() gives. Meanwhile the model does not change, except a shared one. Returns whether
        the model is still not on storage."""
        self.next = time.monotonic() + cfg["save_every"] * (0.5 + rnd.random())
        attempt, until = 0, time.monotonic() + PATIENCE
        while True:
            try:
                return bool(self.ways[cfg["saves"]](step, state, stream, wait))
            except headrace.Fenced:
                raise
            except (headrace.CheckpointError, OSError) as error:
                write(FAILED_SAVE, number=step, aux=attempt)
                os.write(2, f"chaos: the save of step {step} failed: {error}\n".encode())
            if not wait:
                return True
            if self.trainer.control.fault is not None:
                raise self.trainer.control.fault  # its agent is gone; its next process tries again
            if time.monotonic() > until:
                raise RuntimeError(f"the last save has failed for {PATIENCE} s")
            attempt += 1
            time.sleep(0.1)

    def _save(self, step, state, stream, wait):
        exact = cfg["pause"] if self.trainer.model == "shared" else None
        storage = wait or not cfg["memory"] or step * 2654435761 % 5 < 2  # the same on all ranks
        saved = self.ck.save(step, state, exact=exact, storage=storage)
        if wait:
            saved.wait()
        elif storage:
            self.going = saved
        return not storage

    def unsaved(self):
        """Whether the model is not on storage. It waits for a save to storage that is under way, because that
        may fail."""
        if self.going is not None and not self.new:
            try:
                self.going.wait()
            except headrace.Fenced:
                raise
            except (headrace.CheckpointError, OSError) as error:
                os.write(2, f"chaos: the save of step {self.going.step} failed: {error}\n".encode())
                self.new = True
            self.going = None
        return self.new

    def _bind(self, step, state, stream, wait):
        if not self.writes and rnd.random() < 0.5:
            return  # a replicated job calls cut() on every rank, or on one
        taken = None if self.trainer.model == "shared" else to_bytes(state())
        reached("captured")
        cut = self.ck.cut(step)
        reached("frozen")
        if not self.writes:
            return
        path = os.path.join(cfg["checkpoints"], f"own-rank-{self.trainer.rank}-step-{step}-{cut.id}.model")
        os.makedirs(cfg["checkpoints"], exist_ok=True)
        with open(path, "wb") as file:  # bind() syncs the file
            file.write(taken or to_bytes(state()))
        reached("files")
        self.ck.binding = cut
        try:
            self.ck.bind(cut, path)
        finally:
            self.ck.binding = None

    def _carry(self, step, state, stream, wait):
        if not self.writes and rnd.random() < 0.5:
            return
        taken = None if self.trainer.model == "shared" else state()
        reached("captured")
        cut = stream.state_dict(step)
        reached("frozen")
        if not self.writes:
            return
        number = max(self._carried(), default=0) + 1
        path = os.path.join(self._folder(), f"{number:08d}.model")
        with open(path + ".new", "wb") as file:
            file.write(to_bytes(taken or state(), json.dumps(cut)))
            file.flush()
            os.fsync(file.fileno())
        reached("files")
        os.rename(path + ".new", path)
        wrote(SAVED, step, cut["id"])
        wrote(BOUND, step, cut["id"])
        reached("renamed")

    def _folder(self):
        """The folder with the numbered files of this rank's model."""
        rank = self.trainer.rank if self.trainer.model == "private" else 0
        folder = os.path.join(cfg["carried"], f"rank-{rank}")
        os.makedirs(folder, exist_ok=True)
        return folder

    def _carried(self):
        return [int(name[:8]) for name in os.listdir(self._folder()) if name.endswith(".model")]

    # Restoring.

    def restore(self, stream):
        """The step, the state and the cut's id to go on from. None: the start."""
        from_ = b""
        if cfg["saves"] == "carried":
            found = self._load(stream)
        else:
            restored = self.ck.restore()
            found = None
            if restored is not None:
                state = restored.state
                if state is None:  # a file of our own, which bind() bound
                    with open(restored.path, "rb") as file:
                        state, _ = from_bytes(file.read())
                if restored.source != "storage":
                    self.new = True
                    state = {name: array.copy() for name, array in state.items()}  # the slot may be overwritten now
                    self._tell(restored, state)
                found = restored.step, state, restored.cut.id
                if cfg["memory"]:
                    from_ = struct.pack("<qq", int(restored.cut.body["order"]), SOURCES.index(restored.source))
        step, cut = (found[0], signed(found[2])) if found else (0, 0)
        write(RESTORED, cfg["server_life"], step, cut, from_)
        reached("restored")
        return found

    def _tell(self, restored, state):
        """Writes down a state that came from memory: the harness compares it with its cut."""
        path = os.path.join(cfg["restored"], f"{restored.cut.id}-rank-{self.trainer.rank}-{cfg['life']}")
        with open(path + ".new", "wb") as file:
            file.write(to_bytes(state, json.dumps(restored.cut.body)))
        os.rename(path + ".new", path + ".model")

    def _load(self, stream):
        all_of_it = self._carried()
        if not all_of_it:
            self.ck.restore("start")  # the master may keep a cut whose file was never written
            return None
        with open(os.path.join(self._folder(), f"{max(all_of_it):08d}.model"), "rb") as file:
            state, text = from_bytes(file.read())
        cut = json.loads(text)
        with stream() as s:
            s.load_state_dict(cut)
        return cut["step"], state, cut["id"]

    def checkpoints(self):
        """Whether there is a checkpoint to go back to."""
        if cfg["saves"] == "carried":
            return bool(self._carried())
        try:
            return any(n.endswith("headrace-manifest.json") for _, _, names in os.walk(cfg["checkpoints"]) for n in names)
        except FileNotFoundError:  # retention has just removed a folder
            return True
