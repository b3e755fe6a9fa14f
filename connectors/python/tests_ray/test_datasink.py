"""headrace.ray.Datasink on a real Ray, against the real binary: each row comes once,
whichever task or driver is killed."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import headrace
import pytest
from s3_server import Server

PAGE = (Path(__file__).parents[3] / "docs" / "LANDING.md").read_text()

SPEC = """
name: clicks
landing: {end: pushed, partitions: 3, key: /user, chunk: 4KiB, retain: 0s}
decode:
  format: json
  columns:
    - {name: user, path: /user, dtype: int64}
    - {name: label, path: /label, dtype: float32}
"""

TRAINER = """
import headrace
with headrace.dataset("clicks").batches(500, max_wait=0.05) as stream:
    for b in stream:
        print(*b["user"].tolist(), flush=True)
        stream.step()
print("end", flush=True)
"""

# Runs a write on Ray. argv: transaction, what happens, a folder for its traces.
DRIVER = """
import os, signal, sys
from pathlib import Path
import numpy as np, pandas as pd, ray, headrace
from headrace.ray import Datasink
name, what, folder = sys.argv[1], sys.argv[2], Path(sys.argv[3])

class Sink(Datasink):
    def write(self, blocks, ctx):
        locators = super().write(blocks, ctx)
        trace = folder / f"{name}-{ctx.task_idx}"
        if what == "kill tasks" and not trace.exists():  # staged, and the answer is lost
            trace.write_text("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        return locators
    def on_write_complete(self, result):
        if what == "kill driver before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().on_write_complete(result)
        if what == "kill driver after":
            os.kill(os.getpid(), signal.SIGKILL)

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False, address="local")
frame = pd.DataFrame({"user": np.arange(1000), "label": np.ones(1000, np.float32)})
rows = ray.data.from_pandas(frame).repartition(4)

class Counting:
    # A client that the user makes: it has what is used of boto3.
    def __init__(self, url):
        from headrace._upload import _Environment
        self.real = _Environment("lake")
    def put_object(self, *, Bucket, Key, Body, IfNoneMatch, ChecksumCRC32):
        assert (Bucket, IfNoneMatch) == ("lake", "*") and ChecksumCRC32
        self.real.put(Key, Body)

uploads = {"": False, "environment": True, "client": lambda: Counting("lake")}
sink = Sink("clicks", transaction=name, upload=uploads[os.environ.get("UPLOAD", "")])
rows.write_datasink(sink)
print(sink.done.records, sink.done.already, len(list(folder.glob(f"{name}-*"))), flush=True)
ray.shutdown()
"""


@pytest.fixture
def landing(job: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    spec = job.folder / "clicks.yaml"
    spec.write_text(SPEC)
    job.up("-f", str(spec))
    return job


def drive(job: Any, name: str, what: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, name, what, str(job.folder)],
        env=job.env, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    print(done.stderr[-4000:])
    return done


def said(done: subprocess.CompletedProcess[str]) -> str:
    """The driver's own last line: Ray tells of killed workers in between."""
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()[-1]


def test_each_row_comes_once_whatever_is_killed(landing: Any) -> None:
    trainer = landing.trainer(TRAINER)
    for what in ("kill driver before", "kill driver after"):
        assert drive(landing, "driver", what).returncode == -signal.SIGKILL
    assert said(drive(landing, "driver", "nothing")) == "1000 True 0"
    killed = said(drive(landing, "tasks", "kill tasks")).split()
    assert killed[:2] == ["1000", "False"]
    assert int(killed[2]) > 0, "no task was killed"
    with headrace.Pusher("clicks") as pusher:
        pusher.end()
    log = trainer.ended()
    assert log.endswith("end\n"), log
    assert Counter(map(int, log.split()[:-1])) == Counter(dict.fromkeys(range(1000), 2))


def test_tasks_put_their_chunks_into_the_bucket_themselves(
    job: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With their own keys: the master's are right, and with wrong ones the tasks fail."""
    prefix = f"ray-{job.folder.name}"
    job.env.update(server.env, HEADRACE_LANDING_STORAGE=f"s3://lake/{prefix}", UPLOAD="environment")
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    (job.folder / "clicks.yaml").write_text(SPEC.replace("retain: 0s", "retain: 1h"))
    job.up("-f", str(job.folder / "clicks.yaml"))
    before = server.list(prefix)
    job.env["AWS_SECRET_ACCESS_KEY"] = "not the secret key"
    out = drive(job, "refused", "nothing")
    assert out.returncode == 1
    assert "the service answers 403" in out.stderr
    assert server.list(prefix) == before
    job.env.update(server.env)
    trainer = job.trainer(TRAINER)
    assert said(drive(job, "environment", "kill tasks")).split()[:2] == ["1000", "False"]
    environment = len(server.list(prefix))
    assert environment >= len(before) + 4
    job.env["UPLOAD"] = "client"
    assert said(drive(job, "client", "nothing")) == "1000 False 0"
    assert len(server.list(prefix)) >= environment + 4
    with headrace.Pusher("clicks") as pusher:
        pusher.end()
    log = trainer.ended()
    assert Counter(map(int, log.split()[:-1])) == Counter(dict.fromkeys(range(1000), 2))


def test_a_driver_is_told_what_is_wrong_before_a_task_runs(landing: Any) -> None:
    out = drive(landing, "x" * 201, "nothing")
    assert out.returncode == 1
    assert "1 to 200 bytes" in out.stderr
    landing.env["UPLOAD"] = "environment"
    out = drive(landing, "bucket", "nothing")
    assert out.returncode == 1
    assert "push without upload" in out.stderr
    del landing.env["UPLOAD"]
    landing.headrace("delete", "clicks", "--yes")
    out = drive(landing, "nothere", "nothing")
    assert out.returncode == 1
    assert 'no dataset "clicks" was applied' in out.stderr


TWICE = """
import ray
from headrace.ray import Datasink
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False, address="local")
rows = [ray.data.from_items([{"user": user, "label": 1.0}]) for user in range(2)]
sink = Datasink("clicks")
rows[0].write_datasink(sink)
print(sink.done.records, sink.done.already, flush=True)
rows[1].write_datasink(sink)
"""


def test_a_second_write_is_not_taken_for_the_first_one(landing: Any) -> None:
    done = subprocess.run(
        [sys.executable, "-c", TWICE], env=landing.env, capture_output=True, text=True, timeout=400
    )  # fmt: skip
    assert "1 False" in done.stdout.splitlines(), done.stderr[-4000:]
    assert done.returncode == 1
    assert "make a new Datasink for each write" in done.stderr, done.stderr[-4000:]


def test_the_program_of_the_page_runs(landing: Any) -> None:
    (program,) = [p for p in re.findall(r"```python\n(.*?)```", PAGE, re.S) if "headrace.ray" in p]
    import pyarrow as pa
    import pyarrow.parquet as pq

    (landing.folder / "clicks").mkdir()
    pq.write_table(pa.table({"user": range(100), "label": [1.0] * 100}), landing.folder / "clicks" / "a.parquet")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=landing.env, cwd=landing.folder, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert said(done) == "100 False"
