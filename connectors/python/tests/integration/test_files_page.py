"""Every example of docs/FILES.md, as it stands there, over files that other programs wrote."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from test_parquet import table

PAGE = Path(__file__).parents[4] / "docs" / "FILES.md"

EXAMPLES = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S)


def write(data: Path) -> None:
    text = b"id,text\n" + b"".join(b"%d,row %d\n" % (i, i) for i in range(1000))
    (data / "a.csv.gz").write_bytes(gzip.compress(text))
    (data / "export").write_bytes(gzip.compress(text))
    pq.write_table(table(0, 1000), data / "a.parquet")


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_example(job: Any, number: int) -> None:
    write(job.data)
    spec = job.folder / "spec.yaml"
    spec.write_text(EXAMPLES[number])
    job.up()
    out = job.headrace("check", "-f", str(spec)).stdout
    assert re.search(r"\b1,000 records, 0 bad", out), out
    job.headrace("dataset", "apply", "-f", str(spec))
    read = """
import headrace, sys
rows = 0
with headrace.dataset(sys.argv[1]).batches(100) as stream:
    for b in stream:
        rows += len(b["id"])
        stream.step()
print("rows", rows)
"""
    name = re.search(r"^name: (\w+)", EXAMPLES[number], re.M)
    assert name
    assert "rows 1000" in job.helper(read, name[1]).ended()
