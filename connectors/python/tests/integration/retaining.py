"""Shared by the tests of files.retain: trained files are deleted while processes are killed, files
that a kept checkpoint needs stay, and a file that was replaced stays."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any, Protocol

from agent import poll
from forgetting import ROWS, Lives, Writer

LONG = 600  # seconds; enough for a slow machine


class Place(Protocol):
    """Where the files are: a folder, or a bucket."""

    def put(self, name: str, text: str) -> None: ...

    def names(self) -> set[str]: ...


def deletes_what_was_trained(job: Any, place: Place, spec: Path, *settings: str) -> None:
    seed = time.time_ns()
    print("seed", seed)
    rng = random.Random(seed)
    number = 0

    def name(of: int) -> str:
        return f"part-{of:06}.csv"

    def drop() -> range:
        nonlocal number
        ids = range(number * ROWS, (number + 1) * ROWS)
        place.put(name(number), "".join(f"{i}\n" for i in ids))
        number += 1
        return ids

    checkpoints = str(job.folder / "checkpoints")
    lives = Lives(job, spec, *settings)
    with Writer(drop):
        rounds = 0
        while rounds < 4 or number - len(place.names()) < 40:
            rounds += 1
            for _ in range(rng.randrange(3)):
                lives.kill(rng.choice(["trainer", "agent", "master", "all"]))
            lives.saves(5)
            lives.kill("master")
    assert lives.told("files that are trained on, and that no kept checkpoint needs, will be deleted"), job.logs()

    # A pinned checkpoint keeps the files that its model does not have yet.
    lives.trainer.process.kill()
    lives.trainer.process.wait()
    kept = [c for c in json.loads(job.headrace("ckpt", "list", "-o", "json").stdout) if c["state"] == "bound"]
    pinned = max(kept, key=lambda c: c["step"])
    newest = pinned["path"]
    has = pinned["records"]["rows"] // ROWS  # number of files in its model: files are trained in order
    job.headrace("ckpt", "pin", newest)
    lives.start_trainer()
    last = name(number)
    lives.ends_with(Counter(range(number * ROWS)), drop)
    poll(lambda: (there := place.names()) and min(there) >= name(has - 20), LONG)
    assert place.names() >= {name(of) for of in range(has + 1, number)}, job.logs()

    place.put(last, "".join(f"{-i}\n" for i in range(ROWS)))
    copy = job.folder / "copy"
    shutil.copytree(Path(newest).parent, copy)
    removed = str(copy / Path(newest).name)
    job.headrace("ckpt", "unpin", newest)
    job.headrace("ckpt", "rm", checkpoints, "--keep", "1", "--yes")
    poll(lambda: place.names() == {last}, LONG)
    poll(lambda: lives.told("its new content is not read"), LONG)

    # A rewind that needs deleted files is refused, and its plan names them.
    poll(lambda: "deleted" in plan(job, "start"), LONG)
    said = job.headrace("rewind", "default", "--to", "start", "--yes", check=False)
    assert said.returncode != 0, said.stdout
    assert "deleted records that would be read again" in said.stderr, said.stderr

    # A master without its state goes on from the checkpoint. It finds the replaced file under a name
    # that the checkpoint knows.
    lives.enough.unlink()
    with Writer(drop):
        lives.lose_the_state()
        lives.kill("all")
    poll(lambda: "deleted records that would be read again" in plan(job, removed), LONG)
    lives.ends_with(Counter(range(number * ROWS)), drop)


def plan(job: Any, to: str) -> str:
    """The plan of a rewind, which is not done."""
    said = job.headrace("rewind", "default", "--to", to, "--dry-run", check=False)
    return str(said.stdout + said.stderr)
