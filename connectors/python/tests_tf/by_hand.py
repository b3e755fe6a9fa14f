"""Tasks of a cluster that are started by hand, one by one, as on Kubernetes, and a folder that grows."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ports import free_port
from tasks import WITHIN, Tasks

PROGRAM = Path(__file__).parent / "counting.py"


def until(what: str, there: Callable[[], Any], text: Callable[[], str]) -> None:
    deadline = time.monotonic() + WITHIN
    while not there():
        assert time.monotonic() < deadline, f"{what} did not come\n{text()}"
        time.sleep(0.05)


def bound(work: Path) -> list[Path]:
    """The checkpoints that have a manifest, the oldest first."""
    found = work.glob("model/*.headrace-manifest.json")
    return sorted(found, key=lambda p: int(p.name.split("-")[1].split(".")[0]))


def apply_without_end(job: Any) -> None:
    """The job's dataset reads files that come later, too."""
    grows = 'paths: ["*.tsv"], end: never, complete: renamed, refresh: 100ms'
    spec = job.folder / "rows.yaml"
    spec.write_text(job.spec("rows").replace('paths: ["*.tsv"]', grows))
    job.headrace("dataset", "apply", "-f", str(spec))


def drop(job: Any, start: int, end: int) -> None:
    """Adds a file with the records [start, end) to the input."""
    new = job.data / "new.tmp"
    new.write_text("".join(job.line(i) for i in range(start, end)))
    new.rename(job.data / f"from-{start}.tsv")


def await_records(job: Any, records: int, manifests: Callable[[], list[Path]]) -> Path:
    """Waits until the newest checkpoint has so many records. Returns its manifest. manifests: the oldest first."""

    def has_all() -> bool:
        paths = manifests()
        return bool(paths) and Tasks.rows(json.loads(paths[-1].read_text())) == records

    until(f"a checkpoint of {records} records", has_all, job.logs)
    return manifests()[-1]


class ByHand:
    """A cluster of counting.py, with ports of this machine."""

    def __init__(self, job: Any, args: list[str], **sizes: int) -> None:
        self.job, self.argv = job, [str(PROGRAM), *args]
        self.cluster = {kind: [f"127.0.0.1:{free_port()}" for _ in range(n)] for kind, n in sizes.items()}

    def start(self, kind: str, index: int = 0, **env: str) -> Any:
        code = f"import sys, runpy; sys.argv = {self.argv!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
        config = json.dumps({"cluster": self.cluster, "task": {"type": kind, "index": index}})
        return self.job.trainer(code, TF_CONFIG=config, **env)

    @staticmethod
    def status(task: Any) -> int:
        task.ended(WITHIN)
        return int(task.process.returncode)
