"""The specs of docs/BAD-RECORDS.md and docs/BACKFILL.md. Only their folders are changed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

DOCS = Path(__file__).parents[4] / "docs"

READ = """
import headrace
with headrace.dataset("clicks").batches(100) as stream:
    for b in stream:
        print(*b["label"].tolist(), flush=True)
        stream.step()
"""


def examples(page: str) -> list[str]:
    return re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.S)


def test_the_example_of_bad_records_leaves_them_out(job: Any) -> None:
    example, crash = examples("BAD-RECORDS.md")
    assert "/data/clicks" in example
    assert "/data/bad" in example
    bad = job.folder / "bad"
    bad.mkdir()
    spec = job.folder / "clicks.yaml"
    text = example.replace("/data/clicks", str(job.data)).replace("/data/bad", str(bad))
    spec.write_text(text + crash)  # the second one is a line for a spec
    (job.data / "a.tsv").write_text("".join(f"{i if i % 400 else 'no number'}\tx\n" for i in range(1000)))
    job.up()
    job.headrace("dataset", "apply", "-f", str(spec))
    words = job.trainer(READ).ended().split()
    assert sorted(map(float, words)) == [i for i in range(1000) if i % 400]
    (letters,) = bad.glob("*.jsonl")
    letter = json.loads(letters.read_text().splitlines()[0])
    assert letters.name == "clicks.jsonl"
    assert letter["column"] == "label"
    listed = json.loads(job.headrace("deadletter", "list", "clicks", "-o", "json").stdout)
    assert len(listed) == 3
    shown = job.headrace("deadletter", "show", "clicks", listed[0]["id"], "--raw").stdout
    assert shown == "no number\tx"


def test_the_example_of_a_backfill_lacks_only_its_broker(job: Any) -> None:
    """Everything in the spec but the broker is checked. `make test-kafka` and the targets of the other
    brokers read such a dataset with a real broker."""
    (example,) = examples("BACKFILL.md")
    assert "/data/clicks" in example
    spec = job.folder / "clicks.yaml"
    spec.write_text(example.replace("/data/clicks", str(job.data)).replace("kafka-1:9092", "127.0.0.1:1"))
    day = job.data / "dt=2026-11-21"
    day.mkdir()
    rows = {"clicked": pa.array([1.0], pa.float32()), "user_id": pa.array([7], pa.int64())}
    pq.write_table(pa.table(rows), day / "part-0.parquet")
    job.up()
    said = job.headrace("dataset", "apply", "-f", str(spec), "--dry-run", check=False).stderr
    assert "Kafka at 127.0.0.1:1 does not answer" in said, said
