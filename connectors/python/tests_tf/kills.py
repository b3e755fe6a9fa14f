"""One job of examples/estimator_clicks. Its processes are killed one after the other, even while
others still come back. In the end `hist` says, id by id, which records are in the model."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tasks import WITHIN, Tasks

HERE = Path(__file__).parent
# The victims, and how often each is drawn.
ALONE = {"chief": 4, "agent": 2, "master": 2, "everything": 1}
CLUSTER = {"worker 0": 3, "worker 1": 3, "chief": 4, "ps 0": 2, "agent": 2, "master": 2, "everything": 1}
TRAINERS = ("chief", "worker 0", "worker 1")
OF_A_BATCH = ("pulled", "run", "step")
OF_A_SAVE = ("paused", "captured", "frozen", "manifest", "renamed", "bound")
MANIFEST = ".headrace-manifest.json"


class Killed(Tasks):
    """alone: one process trains, and the model is in it. Else: a parameter server, a chief and two
    workers, sometimes an evaluator. server: the socket of forked.py."""

    def __init__(self, job: Any, rng: random.Random, server: Path, alone: bool, spec: str, *args: str) -> None:
        super().__init__(job, spec, *args)
        self.program = ("-I", "-S", str(HERE / "forked.py"), str(server), str(HERE / "told.py"), "train.py")
        self.rng, self.alone, self.spec = rng, alone, spec
        self.kind = "replicated" if alone else "shared"
        if not alone and rng.random() < 0.7:
            file = self.work / "job.yaml"
            file.write_text(file.read_text().replace(", evaluator: 1", ""))
        self.told = Path(job.folder) / "told"
        self.told.mkdir()
        job.env["TOLD"] = str(self.told)
        self.killed: dict[str, int] = {}  # trainer -> pid of its start that was killed
        self.since: dict[str, int] = {}  # agent, master -> when it was started again
        self.may_come_twice: Counter[int] = Counter()  # ids that killed trainers had in hand
        self.goes_on: Callable[[], bool] = lambda: True  # online: writes more if it is time; False: all is trained
        self.kills: list[str] = []
        self.needed = self.numbers("records")  # the last checkpoint has all ids below it

    def runs_what(self) -> list[str]:
        if not self.alone:
            return ["job.yaml"]
        return ["--model", "replicated", "--max-restarts", "1000", "-f", self.spec]

    # Waiting.

    def wait(self, what: str, there: Callable[[], Any]) -> bool:
        """Waits until there() is true. False: all was trained before."""
        deadline = time.monotonic() + WITHIN
        while not there():
            if self.runs.poll() not in (None, -signal.SIGKILL) or not self.goes_on():
                return False
            assert time.monotonic() < deadline, f"{what} did not come after {self.kills}\n{self.text()}"
            time.sleep(0.05)
        return True

    def task(self, name: str) -> tuple[int, int]:
        """The pid of its newest start, and how many batches that one has stepped."""
        try:
            pid, steps = (self.told / f"{name}.steps").read_text().split()
        except (FileNotFoundError, ValueError):  # not there yet
            return 0, 0
        return int(pid), int(steps)

    def lives(self, pid: int) -> bool:
        try:
            return b"forked.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            return False

    def ready(self, victim: str) -> bool:
        """Whether it has made progress since it was killed: a trainer has stepped a batch; with the
        agent or the master, a checkpoint was bound."""
        name = victim if victim in TRAINERS else "chief"
        pid, steps = self.task(name)
        if pid == self.killed.get(name) or not steps:
            return False
        since = self.since.get(victim, 0)
        return not since or any(made > since for made in self.made())

    def made(self) -> list[int]:
        """When the bound checkpoints were made."""
        found = []
        for path in self.bound():
            try:
                found.append(path.stat().st_mtime_ns)
            except FileNotFoundError:
                continue  # removed, as keep_checkpoint_max says
        return found

    # Kills.

    def play(self, kills: int) -> None:
        """Kills so many times, or until all is trained."""
        victims = ALONE if self.alone else CLUSTER
        drawn = self.rng.choices(list(victims), list(victims.values()), k=kills)
        self.start()
        for victim in drawn:
            if not self.wait(f"progress of {victim}", lambda victim=victim: self.ready(victim)):  # type: ignore[misc]
                break
            if not self.strike(victim):
                break
        (self.told / "fast").touch()

    def strike(self, victim: str) -> bool:
        """Kills it at a place that is drawn. False: all was trained before."""
        name = victim if victim in TRAINERS else "chief"  # the task that comes to the place
        saves = name == "chief"
        places = ["now", "now", *OF_A_BATCH, *(OF_A_SAVE if saves else ()), *(["begin"] if victim == "chief" else [])]
        place = self.rng.choice(places)
        pids = self.victims(victim)
        if place in ("now", "begin"):
            time.sleep(self.rng.choice([0, 0.1, 1.0]))
            if place == "begin":  # it is killed now, and when it comes back
                self.order("chief", "begin", 1, [0])
            try:
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:  # it has just ended well
                return self.wait("the end", lambda: False)
            self.say(victim, "now")
        else:
            times = 1 if place in OF_A_SAVE else self.rng.randint(1, 6)
            self.order(name, place, times, pids)
        if not self.wait(f"{victim} killed at {place}", lambda: self.gone(victim, pids)):
            (self.told / f"{name}.order").unlink(missing_ok=True)
            return False
        if place not in ("now", "begin"):
            self.say(victim, place)
        self.again(victim, pids)
        if place == "begin":
            if not self.wait("chief killed at begin", lambda: not (self.told / "chief.order").exists()):
                return False
            self.say("chief", "begin")
        return True

    def say(self, victim: str, place: str) -> None:
        self.kills.append(f"{victim} at {place}")
        print(f"  {time.strftime('%H:%M:%S')} {self.kills[-1]}", flush=True)

    def order(self, task: str, place: str, times: int, pids: list[int]) -> None:
        new = self.told / "order.new"
        new.write_text(f"{place} {times} {' '.join(map(str, pids))}")
        new.rename(self.told / f"{task}.order")

    def victims(self, victim: str) -> list[int]:
        if victim == "everything":
            pids = [self.runs.pid, self.agent.pid, self.master.pid]
            self.rng.shuffle(pids)
            return pids
        if victim in ("agent", "master"):
            return [getattr(self, victim).pid]
        return [self.task(victim)[0]]

    def gone(self, victim: str, pids: list[int]) -> bool:
        if victim == "everything":
            processes = (self.runs, self.agent, self.master)
            if any(process.poll() is not None for process in processes):
                for process in processes:  # the chief kills them, and may have died with its parent before the last
                    process.kill()
            return all(p.poll() is not None for p in processes) and not any(map(self.lives, self.all_tasks()))
        if victim in ("agent", "master"):
            return getattr(self, victim).poll() is not None
        return not self.lives(pids[0])

    def all_tasks(self) -> list[int]:
        return [int(path.stem) for path in self.told.glob("*.hand")]

    def again(self, victim: str, pids: list[int]) -> None:
        """Notes what the killed one had in hand, and starts what `headrace run` does not."""
        if victim in TRAINERS:
            self.killed[victim] = pids[0]
            if not self.alone:
                self.may_come_twice.update(self.in_hand(pids[0]))
            return
        if victim in ("ps 0", "everything"):
            self.killed.update({name: self.task(name)[0] for name in TRAINERS})
        if victim == "everything":
            (self.told / "chief.order").unlink(missing_ok=True)
            self.runs = self.agent = self.master = None
            self.start()
        elif victim == "agent":
            self.start_agent()
        elif victim == "master":
            self.start_master()
        self.since[victim] = time.time_ns()

    def in_hand(self, pid: int) -> list[int]:
        held = np.fromfile(self.told / f"{pid}.hand", np.int64)
        return [int(i) for i in held[1 : 1 + held[0]]]

    # The judge.

    def listed(self, path: Path, named: Callable[[Any], np.ndarray]) -> np.ndarray:
        """How often a checkpoint's manifest has each id. named: the ids of an audit's ranges."""
        audit = json.loads(self.job.headrace("audit", str(path), "-o", "json").stdout)
        counts = np.zeros(self.numbers("records"), np.int64)
        np.add.at(counts, named(audit), 1)
        return counts

    def never(self, named: Callable[[Any], np.ndarray]) -> int:
        """How many ids that are needed the newest checkpoint does not have."""
        return int((self.listed(self.bound()[-1], named)[: self.needed] == 0).sum())

    def judge(self, named: Callable[[Any], np.ndarray]) -> str:
        """Each record must be in the last checkpoint once; those that a killed trainer had in hand may be
        there once more. Earlier checkpoints must have the records of their manifests."""
        may = np.zeros(self.numbers("records"), np.int64)
        for i, n in self.may_come_twice.items():
            may[i] = n
        paths = self.bound()
        some = {*self.rng.sample(paths[:-1], min(8, len(paths) - 1)), paths[-1]}
        for path in (path for path in paths if path in some):
            fields = json.loads(path.read_text())
            prefix = str(path)[: -len(MANIFEST)]
            hist = tf.train.load_variable(prefix, "hist").astype(np.int64)
            listed = self.listed(path, named)
            assert fields["cut"]["exact"] is True or self.alone, f"{prefix}: the cut of a cluster is not exact"
            if not self.alone:
                assert int(tf.train.load_variable(prefix, "global_step")) == fields["step"], prefix
            lost, more = np.flatnonzero(hist < listed), np.flatnonzero(hist > listed + may)
            assert not len(lost), f"{prefix}: {len(lost)} records of its list are not in it: {lost[:50]}"
            assert not len(more), f"{prefix}: {len(more)} records are in it too often: {more[:50]} {hist[more[:50]]}"
        never, twice = np.flatnonzero(hist[: self.needed] == 0), np.flatnonzero(hist > 1)
        assert not len(never), f"{len(never)} records are lost: {never[:50]}"
        often = np.flatnonzero(hist > 1 + may)
        assert not len(often), f"{len(often)} records are in the model too often: {often[:50]} {hist[often[:50]]}"
        return f"{(hist > 0).sum()} records once, of them {len(twice)} twice that killed trainers had in hand"

    def numbers(self, name: str) -> int:
        """The value of an argument of the program."""
        return int(next(a.split("=")[1] for a in self.args if a.startswith(f"--{name}=")))
