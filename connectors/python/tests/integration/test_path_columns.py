"""Columns from folders named key=value, in tables that other programs wrote."""

from __future__ import annotations

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import headrace
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from agent import poll

ROWS, DAYS = 20_000, ["2026-11-20", "2026-11-21", "2026-11-22 10:30:00"]
COUNTRIES = ["de", "côte/d'or", None]

COLUMNS = """
    - {name: id, path: id, dtype: int64}
    - {name: dt, path: $path.dt, dtype: string}
    - {name: hour, path: $path.hour, dtype: int32}
    - {name: country, path: $path.country, dtype: int64, hash: {buckets: 1000}, default: 0}
    - {name: known, path: $path.country, dtype: string, missing: mask}
"""

TRAIN = """
import headrace, json, os

with headrace.dataset("rows").batches(300) as stream, open(os.environ["ROWS"], "a") as out:
    print("open", flush=True)
    for n, b in enumerate(stream):
        if n == 0 and "WAIT" in os.environ:
            print("batch", flush=True)
            input()
        dt, known, mask = b.text("dt"), b.text("known"), b.mask("known").tolist()
        rows = zip(b["id"].tolist(), dt, b["hour"].tolist(), b["country"].tolist(), known, mask)
        out.writelines(json.dumps(row) + "\\n" for row in rows)
        out.flush()
        stream.step()
"""


def row(i: int) -> list[Any]:
    """Row i as a trainer gets it."""
    country = COUNTRIES[i // 7 % 3]
    bucket = 0 if country is None else int(headrace.hash64(country, buckets=1000))
    return [i, DAYS[i % 3], i // 3 % 4, bucket, country or "", country is not None]


def table(rows: range) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(rows, pa.int64()),
            "dt": [DAYS[i % 3] for i in rows],
            "hour": [f"{i // 3 % 4:02}" for i in rows],
            "country": [COUNTRIES[i // 7 % 3] for i in rows],
        }
    )


def write(data: Path, kind: str, rows: range) -> None:
    """Writes a table in Hive partitions. pyarrow escapes names and null as Hive does."""
    by = ds.partitioning(
        pa.schema([("dt", pa.string()), ("hour", pa.string()), ("country", pa.string())]), flavor="hive"
    )
    ds.write_dataset(
        table(rows), data, format="parquet" if kind == "parquet" else "csv", partitioning=by,
        existing_data_behavior="overwrite_or_ignore", basename_template=f"part-{rows.start}-{{i}}.{kind.split('.')[0]}",
    )  # fmt: skip
    if kind == "csv.gz":
        for file in data.rglob("*.csv"):
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()


def spec(job: Any, kind: str, more: str = "") -> Path:
    header = "\n  header: true" if kind != "parquet" else ""
    lease = "256, min: 16, max: 1024" if kind == "parquet" else "4KiB, min: 1KiB, max: 16KiB"
    text = (
        f"name: rows\nfiles: {{root: {job.data}{more}}}\ndecode:\n  format: {kind.split('.')[0]}{header}\n"
        f"  columns:{COLUMNS}lease: {{initial: {lease}}}\n"
    )
    file = Path(job.folder / "rows.yaml")
    file.write_text(text)
    return file


def read(outs: list[Path]) -> list[list[Any]]:
    return sorted([json.loads(line) for out in outs for line in out.read_text().splitlines()])


@pytest.mark.parametrize("kind", ["parquet", "csv", "csv.gz"])
def test_each_row_has_its_folders_values_through_a_kill_of_the_agent(job: Any, kind: str) -> None:
    write(job.data, kind, range(ROWS))
    assert any("%2F" in str(f) for f in job.data.rglob("*")), "the table has no escaped folder name"
    assert any("__HIVE_DEFAULT_PARTITION__" in str(f) for f in job.data.rglob("*"))
    file = spec(job, kind)
    assert "20,000 records, 0 bad" in job.headrace("check", "-f", str(file)).stdout
    up = job.up("--model", "shared")
    job.headrace("dataset", "apply", "-f", str(file))
    outs = [job.folder / f"rows-{k}" for k in range(2)]
    trainers = [
        job.trainer(TRAIN, stdin=True, WAIT="", ROWS=str(out), HEADRACE_RANK=str(k), HEADRACE_WORLD_SIZE="2")
        for k, out in enumerate(outs)
    ]
    trainers[0].printed(2)
    trainers[1].printed(1)
    os.kill(up.pid, signal.SIGKILL)
    up.wait()
    os.unlink(job.socket)
    job.up("--model", "shared")
    for t in trainers:
        t.process.stdin.write(b"\n")
        t.process.stdin.close()
    said = [t.ended() for t in trainers]
    assert read(outs) == [row(i) for i in range(ROWS)], said


def test_a_folder_that_grows(job: Any) -> None:
    job.up("--model", "shared")
    file = spec(job, "parquet", ", end: never, refresh: 100ms, complete: renamed")
    job.headrace("dataset", "apply", "-f", str(file))
    out = job.folder / "rows-0"
    job.trainer(TRAIN.replace("batches(300)", "batches(300, max_wait=0.1)"), ROWS=str(out))
    for first in range(0, 2000, 500):
        aside = job.folder / f"aside-{first}"
        write(aside, "parquet", range(first, first + 500))
        for f in aside.rglob("*.parquet"):
            at = job.data / f.relative_to(aside)
            at.parent.mkdir(parents=True, exist_ok=True)
            f.rename(at)
        poll(lambda first=first: out.exists() and len(out.read_text().splitlines()) == first + 500)
    assert read([out]) == [row(i) for i in range(2000)]


def test_a_file_without_the_folder_is_named(job: Any) -> None:
    write(job.data, "parquet", range(100))
    (job.data / "zz.parquet").write_bytes(next(job.data.rglob("*.parquet")).read_bytes())
    file = spec(job, "parquet")
    want = "zz.parquet: column dt ($path.dt): the file lies in no folder dt=..."
    out = job.headrace("check", "-f", str(file), check=False)
    assert want in out.stdout + out.stderr, out
    job.up("--model", "shared")
    job.headrace("dataset", "apply", "-f", str(file))
    trainer = job.trainer(TRAIN, ROWS=str(job.folder / "rows-0"))
    assert want in trainer.ended()
    file.write_text(file.read_text().replace("$path.dt, dtype: string", "$path.dt, dtype: string, default: none"))
    file.write_text(file.read_text().replace("$path.hour, dtype: int32", "$path.hour, dtype: int32, default: 5"))
    assert "0 bad" in job.headrace("check", "-f", str(file)).stdout
