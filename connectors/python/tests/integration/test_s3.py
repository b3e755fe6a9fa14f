"""Files on a real S3 server, through real processes: `make test-s3`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import headrace
import pytest
from s3_server import Server, server

__all__ = ["server"]

TRAIN = """
import headrace, os

with headrace.dataset("rows").batches(500) as stream, open(os.environ["IDS"], "a") as out:
    for n, b in enumerate(stream):
        print(*b["id"].tolist(), file=out, flush=True)
        stream.step()
        if n % 5 == 0:
            print("batch", n, flush=True)
"""

SPEC = """
name: rows
files: {{root: s3://lake/{prefix}, connection: lake, paths: ["*.{end}"]}}
decode:
  format: {format}
  columns:
    - {{name: id, path: id, dtype: int64}}
    - {{name: text, path: text, dtype: string}}
lease: {{initial: {lease}, min: {lease}, max: {lease}}}
"""

SETTINGS = """
connections:
  lake:
    s3:
      endpoint: {AWS_ENDPOINT_URL}
      region: us-east-1
      access_key: {AWS_ACCESS_KEY_ID}
      secret_key_env: HEADRACE_LAKE_SECRET
      prefixes: [s3://lake/{prefix}]
"""


def write(file: Path, kind: str, first: int, last: int) -> None:
    rows = range(first, last)
    if kind == "csv":
        file.write_text("id,text\n" + "".join(f'{i},"row {i}"\n' for i in rows))
        return
    if kind == "avro":
        import fastavro

        fields = [{"name": "id", "type": "long"}, {"name": "text", "type": "string"}]
        schema = fastavro.parse_schema({"type": "record", "name": "Row", "fields": fields})
        records = ({"id": i, "text": f"row {i}"} for i in rows)
        with file.open("wb") as out:  # many blocks, so that some leases begin in the middle of a file
            fastavro.writer(out, schema, records, codec="zstandard", sync_interval=4000)
        return
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pa.table({"id": list(rows), "text": [f"row {i}" for i in rows]})
    pq.write_table(table, file, row_group_size=4000)


def settings(job: Any, server: Server, prefix: str) -> None:
    file = job.folder / "headrace.yaml"
    file.write_text(SETTINGS.format(prefix=prefix, **server.env))
    job.config = ["--config", str(file)]
    job.env["HEADRACE_LAKE_SECRET"] = server.env["AWS_SECRET_ACCESS_KEY"]


def fill(job: Any, server: Server, kind: str, rows: int, files: int = 4) -> Path:
    prefix, per = f"{kind}-{job.folder.name}", rows // files
    for k in range(files):
        file = job.folder / f"part-{k}.{kind}"
        write(file, kind, k * per, (k + 1) * per)
        server.put(f"{prefix}/{file.name}", file)
    settings(job, server, prefix)
    more = "csv, header: true" if kind == "csv" else kind
    text = SPEC.format(prefix=prefix, end=kind, format="{}", lease="64KiB" if kind == "csv" else "2048")
    text = text.replace("format: {}", "format: " + more.replace(", ", "\n  "))
    spec = job.folder / "rows.yaml"
    spec.write_text(text)
    return Path(spec)


@pytest.mark.parametrize("kind", ["csv", "parquet", "avro"])
def test_each_record_is_read_once_through_a_kill_of_the_agent(job: Any, server: Server, kind: str) -> None:
    rows = 40_000
    spec = fill(job, server, kind, rows)
    checked = job.headrace("check", "-f", str(spec), *job.config)
    assert "rows" in checked.stdout + checked.stderr
    up = job.up("--model", "shared", *job.config)
    job.headrace("dataset", "apply", "-f", str(spec), *job.config)
    outs = [job.folder / f"ids-{k}" for k in range(2)]
    # Each trainer waits in its second batch until a new agent runs.
    train = TRAIN.replace("        stream.step()", "        if n == 1:\n            input()\n        stream.step()")
    trainers = [
        job.trainer(train, stdin=True, IDS=str(out), HEADRACE_RANK=str(k), HEADRACE_WORLD_SIZE="2")
        for k, out in enumerate(outs)
    ]
    while not (all(out.exists() for out in outs) and any(out.read_text().count("\n") == 2 for out in outs)):
        assert all(t.process.poll() is None for t in trainers), [t.log.read_text() for t in trainers]
        time.sleep(0.005)
    os.kill(up.pid, signal.SIGKILL)
    up.wait()
    os.unlink(job.socket)
    job.up("--model", "shared", *job.config)
    for t in trainers:
        t.process.stdin.write(b"\n")
        t.process.stdin.close()
    said = [t.ended() for t in trainers]
    got = [int(i) for out in outs for i in out.read_text().split()]
    assert sorted(got) == list(range(rows)), said


def test_the_example_of_the_page(job: Any, server: Server) -> None:
    file = job.folder / "a.parquet"
    write(file, "parquet", 0, 1000)
    server.put("clicks/dt=2026-11-23/a.parquet", file)
    settings(job, server, "clicks")
    page = (Path(__file__).parents[4] / "docs" / "FILES.md").read_text()
    (example,) = (e for e in re.findall(r"```yaml\n(.*?)```", page, re.S) if "s3://" in e)
    spec = job.folder / "clicks.yaml"
    spec.write_text(example)
    checked = job.headrace("check", "-f", str(spec), *job.config)
    assert "1,000 rows, 0 bad" in checked.stdout or "1,000 records, 0 bad" in checked.stdout, checked.stdout


def test_columns_come_from_the_names_of_folders(job: Any, server: Server) -> None:
    prefix = f"days-{job.folder.name}"
    for hour in range(3):
        file = job.folder / "a.parquet"
        write(file, "parquet", hour * 1000, hour * 1000 + 1000)
        server.put(f"{prefix}/dt=2026-11-22T10%3A00/hour={hour:02}/a.parquet", file)
    settings(job, server, prefix)
    spec = job.folder / "rows.yaml"
    spec.write_text(
        f"name: rows\nfiles: {{root: s3://lake/{prefix}, connection: lake}}\ndecode:\n  format: parquet\n  columns:\n"
        "    - {name: id, path: id, dtype: int64}\n    - {name: hour, path: $path.hour, dtype: int32}\n"
        "    - {name: dt, path: $path.dt, dtype: string}\n"
    )
    job.up(*job.config)
    job.headrace("dataset", "apply", "-f", str(spec), *job.config)
    said = job.trainer(
        "import headrace, json\n"
        'with headrace.dataset("rows").batches(500) as stream:\n'
        "    for b in stream:\n"
        '        print(json.dumps([*zip(b["id"].tolist(), b["hour"].tolist(), b.text("dt"))]), flush=True)\n'
        "        stream.step()\n"
    ).ended()
    rows = [row for line in said.splitlines() if line.startswith("[[") for row in json.loads(line)]
    assert sorted(rows) == [[i, i // 1000, "2026-11-22T10:00"] for i in range(3000)], said


def test_an_object_that_is_replaced_is_named(job: Any, server: Server) -> None:
    spec = fill(job, server, "csv", 200_000, files=1)
    job.up("--model", "shared", *job.config)
    job.headrace("dataset", "apply", "-f", str(spec), *job.config)
    trainer = job.trainer(
        TRAIN.replace("stream.step()", "stream.step(); n or input()"), stdin=True, IDS=str(job.folder / "ids")
    )
    trainer.printed(0)
    other = job.folder / "other.csv"
    write(other, "csv", 500_000, 700_000)
    while not (job.folder / "ids").exists() or not (job.folder / "ids").read_text():
        assert trainer.process.poll() is None, trainer.log.read_text() + job.logs()
        time.sleep(0.005)
    server.put(f"csv-{job.folder.name}/part-0.csv", other)
    trainer.process.stdin.write(b"\n")
    trainer.process.stdin.close()
    said = trainer.ended()
    assert "part-0.csv" in said, said
    assert "another object in its place: ETag" in said, said
    got = [int(i) for i in (job.folder / "ids").read_text().split()]
    assert max(got) < 200_000


def test_each_error_of_a_bucket_is_one_sentence(job: Any, server: Server) -> None:
    spec = fill(job, server, "csv", 100, files=1)
    job.env["HEADRACE_LAKE_SECRET"] = "not the secret key"
    said = job.headrace("check", "-f", str(spec), *job.config, check=False)
    assert said.returncode != 0
    assert "the secret key does not fit the access key" in said.stderr
    assert "not the secret key" not in said.stderr
    assert server.env["AWS_SECRET_ACCESS_KEY"] not in said.stderr
    spec.write_text(spec.read_text().replace("connection: lake", "connection: lak"))
    said = job.headrace("check", "-f", str(spec), *job.config, check=False)
    assert "no connection lak is registered here" in said.stderr


PUSHED = """
name: rows
landing: {end: pushed, partitions: 2, key: /user, chunk: 16KiB, retain: 0s}
decode:
  format: json
  columns:
    - {name: id, path: /id, dtype: int64}
    - {name: user, path: /user, dtype: string}
"""


def test_pushed_records_lie_on_s3_and_are_read_once_through_a_kill(job: Any, server: Server) -> None:
    prefix = f"landing-{job.folder.name}"
    settings(job, server, prefix)
    job.env.update(HEADRACE_LANDING_STORAGE=f"s3://lake/{prefix}", HEADRACE_LANDING_CONNECTION="lake")
    up = job.up("--model", "shared", *job.config)
    spec = job.folder / "rows.yaml"
    spec.write_text(PUSHED)
    job.headrace("dataset", "apply", "-f", str(spec))
    rows, each = 20_000, 2_000
    for first in range(0, rows, each):
        if first == rows // 2:
            chunks = server.list(prefix)
            assert len(chunks) > 10
            assert not (job.folder / "state" / "landing").exists()
            trainer = job.trainer(TRAIN, IDS=str(job.folder / "ids"))
            trainer.printed(1)
            os.kill(up.pid, signal.SIGKILL)
            up.wait()
            os.unlink(job.socket)
            job.up("--model", "shared", *job.config)
        file = job.folder / f"{first}.jsonl"
        file.write_text("".join(f'{{"id": {i}, "user": "u{i % 13}"}}\n' for i in range(first, first + each)))
        last = ["--end"] if first + each == rows else []
        with file.open() as lines:
            subprocess.run(
                [job.binary, "push", "rows", "--transaction", str(first), *last, *job.config],
                env=job.env,
                stdin=lines,
                check=True,
                capture_output=True,
                timeout=300,
            )
    said = trainer.ended()
    got = [int(i) for i in (job.folder / "ids").read_text().split()]
    assert sorted(got) == list(range(rows)), said


def test_writers_put_their_chunks_into_the_bucket_themselves(
    job: Any, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = f"upload-{job.folder.name}"
    settings(job, server, prefix)
    job.env.update(HEADRACE_LANDING_STORAGE=f"s3://lake/{prefix}", HEADRACE_LANDING_CONNECTION="lake")
    up = job.up("--model", "shared", *job.config)
    spec = job.folder / "rows.yaml"
    spec.write_text(PUSHED)
    job.headrace("dataset", "apply", "-f", str(spec))
    monkeypatch.setenv("HEADRACE_STATE", job.env["HEADRACE_STATE"])
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    rows = 4_000

    def line(i: int) -> dict[str, Any]:
        return {"id": i, "user": f"u{i % 13}"}

    def chunks() -> int:
        """Counts the chunks in the bucket, without the objects in which the master notes what is visible."""
        return sum("/visible/" not in key for key in server.list(prefix))

    with headrace.Pusher("rows", upload=True) as pusher:
        part = pusher.begin("frozen")
        before = chunks()
        os.kill(up.pid, signal.SIGSTOP)  # so that no chunk can go through the master
        try:
            for i in range(rows):
                part.push(line(i))
            locators = part.stage()
        finally:
            os.kill(up.pid, signal.SIGCONT)
        assert chunks() == before + len(locators) > 5
        forged = [*locators[:-1], locators[-1].replace("1 ", "1 x", 1)]
        for wrong, why in (
            (forged, "not stored|not the locator|staged for another"),
            (locators[:1] * 2, "named twice"),
        ):
            with pytest.raises(headrace.PushError, match=why):
                pusher.commit("frozen", wrong)
        with pytest.raises(headrace.PushError, match="was not staged for"):
            pusher.commit("another", locators)
        assert pusher.commit("frozen", locators).records == rows
        assert pusher.commit("frozen", locators).already
        never = pusher.begin("never")
        never.push(line(10**6))
        never.stage()  # never committed, so its records never come

    assert (
        headrace.push("rows", (line(i) for i in range(rows, 2 * rows)), transaction="again", upload=True).records
        == rows
    )
    file = job.folder / "more.jsonl"
    file.write_text("".join(json.dumps(line(i)) + "\n" for i in range(2 * rows, 3 * rows)))
    for _ in range(2):
        job.headrace("push", "rows", str(file), "--transaction", "cli", "--upload", *job.config)
    job.headrace("push", "rows", "--end", "--upload", "/dev/null", *job.config)

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "not the secret key")
    with headrace.Pusher("rows", upload=True) as pusher:
        part = pusher.begin("refused")
        part.push(line(0))
        with pytest.raises(headrace.PushError, match="403") as refused:
            part.stage()
        assert "not the secret key" not in str(refused.value)

    job.trainer(TRAIN, IDS=str(job.folder / "ids")).ended()
    got = [int(i) for i in (job.folder / "ids").read_text().split()]
    assert sorted(got) == list(range(3 * rows))


# Trains until it has seen the number of ids in its argument.
UNTIL = """
import headrace, sys
import numpy as np

with headrace.dataset("rows").batches(100, max_wait=0.1) as stream, headrace.Checkpointer(sys.argv[1], stream) as ck:
    restored = ck.restore()
    seen = restored.state["seen"].tolist() if restored is not None else []
    step = restored.step if restored is not None else 0
    while len(seen) < int(sys.argv[2]):
        seen += next(stream)["id"].tolist()
        step = stream.step(step + 1)
        if step % 5 == 0:
            ck.save(step, {"seen": np.array(seen)})
            print("step", step, flush=True)
    ck.save(step, {"seen": np.array(seen)})
    print("ids", *seen)
"""


def test_objects_that_are_put_later_are_read_once_through_kills(job: Any, server: Server) -> None:
    """Half of the objects are put after trainer, agent and master were killed."""
    prefix, rows, files = f"grows-{job.folder.name}", 1000, 8
    settings(job, server, prefix)
    spec = job.folder / "rows.yaml"
    spec.write_text(
        f"name: rows\nfiles: {{root: s3://lake/{prefix}, connection: lake, end: never, refresh: 100ms}}\n"
        "decode:\n  format: csv\n  header: true\n  columns:\n    - {name: id, path: id, dtype: int64}\n"
        "lease: {initial: 1KiB, min: 1KiB, max: 4KiB}\n"
    )
    file = job.folder / "part.csv"

    def put(numbers: range) -> None:
        for n in numbers:
            write(file, "csv", n * rows, (n + 1) * rows)
            server.put(f"{prefix}/dt=2026-11-{20 + n % 3}/part-{files - n}.csv", file)

    up = job.up("--model", "private", *job.config)
    job.headrace("dataset", "apply", "-f", str(spec), *job.config)  # the prefix has no object
    first = job.helper(UNTIL, str(job.folder / "checkpoints"), str(files * rows))
    put(range(files // 2))
    first.printed(2)
    os.kill(up.pid, signal.SIGKILL)
    up.wait()
    first.process.kill()
    first.process.wait()
    put(range(files // 2, files))
    os.unlink(job.socket)
    job.up("--model", "private", *job.config)
    said = job.helper(UNTIL, str(job.folder / "checkpoints"), str(files * rows)).ended()
    (ids,) = (line.split()[1:] for line in said.splitlines() if line.startswith("ids"))
    assert sorted(map(int, ids)) == list(range(files * rows)), said


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("one", [False, True])
def test_init_looks_at_a_bucket(job: Any, server: Server, kind: str, one: bool) -> None:
    """The program that init writes trains on every record of a prefix, or of one object."""
    prefix, rows = f"init-{kind}-{one}-{job.folder.name}", 3000
    for n in range(2):
        file = job.folder / f"part-{n}.{kind}"
        write(file, kind, n * rows, (n + 1) * rows)
        server.put(f"{prefix}/dt=2026-11-2{n}/{file.name}", file)
    data = f"s3://lake/{prefix}" + (f"/dt=2026-11-20/part-0.{kind}" if one else "")
    project = job.folder / "project"
    project.mkdir()

    def headrace(*args: str) -> str:
        env = {**job.env, **server.env, "PATH": f"{Path(sys.executable).parent}:{job.env['PATH']}"}
        done = subprocess.run([job.binary, *args], cwd=project, env=env, capture_output=True, text=True, timeout=800)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    wrote = headrace("init", data, "--name", "rows")
    assert ("$path.dt" in (project / "rows.yaml").read_text()) != one
    command = wrote.split("The next command:")[1].split()
    out = headrace(*command[1:])
    assert f"end of data: {rows if one else 2 * rows:,} records in this run" in out, out
