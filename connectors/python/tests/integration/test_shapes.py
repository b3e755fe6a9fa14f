"""Lists of a fixed length reach a trainer as matrices, through a kill of master and agent: the example
of docs/DATASETS.md."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

TRAIN = """
import headrace, json, os

with headrace.dataset("embeddings").batches(100) as stream, open(os.environ["ROWS"], "a") as out:
    for b in stream:
        assert b["vector"].shape == (len(b), 6) and b["grid"].shape == (len(b), 2, 2)
        for row in zip(b["id"].tolist(), b["vector"].tolist(), b["grid"].tolist()):
            print(json.dumps(row), file=out)
        out.flush()
        stream.step()
"""


def record(i: int) -> dict[str, Any]:
    grid = None if i % 7 == 0 else [{"x": i + k, "y": k} for k in range(4)]
    if grid and i % 5 == 0:
        grid[2]["x"] = None
    return {"id": i, "vector": [i / 8 + k for k in range(6)], "grid": grid}


def row(i: int) -> list[Any]:
    flat = [0 if e["x"] is None else e["x"] for e in record(i)["grid"] or [{"x": 0}] * 4]
    return [i, record(i)["vector"], [flat[:2], flat[2:]]]


def test_lists_of_a_fixed_length_are_matrices(job: Any) -> None:
    n = 3_000
    (job.data / "a.jsonl").write_text("".join(json.dumps(record(i)) + "\n" for i in range(n)))
    page = (Path(__file__).parents[4] / "docs" / "DATASETS.md").read_text()
    (example,) = (e for e in re.findall(r"```yaml\n(.*?)```", page, re.S) if "name: embeddings" in e)
    spec = job.folder / "embeddings.yaml"
    spec.write_text(
        example.replace("/data/embeddings", str(job.data)) + "lease: {initial: 4KiB, min: 4KiB, max: 4KiB}\n"
    )
    rows, said = job.rows_through_a_kill(spec, TRAIN)
    assert rows == [row(i) for i in range(n)], said


@pytest.mark.parametrize(
    ("column", "says"),
    [
        ("{name: v, path: /vector/*, dtype: float32, shape: [5]}", "has 6 values, and its shape has"),
        ("{name: v, path: /vector, dtype: float32, shape: [6]}", "write a path with *"),
        ("{name: v, path: /vector/*, dtype: string, shape: [6]}", "is for numbers"),
    ],
)
def test_what_does_not_fit_is_named(job: Any, column: str, says: str) -> None:
    (job.data / "a.jsonl").write_text(json.dumps(record(1)) + "\n")
    spec = job.folder / "s.yaml"
    spec.write_text(f"name: s\nfiles: {{root: {job.data}}}\ndecode:\n  format: json\n  columns:\n    - {column}\n")
    out = job.headrace("check", "-f", str(spec), check=False)
    assert says in out.stdout + out.stderr
