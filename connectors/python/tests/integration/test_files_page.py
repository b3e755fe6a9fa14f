"""Every example of docs/FILES.md, unchanged, on files that other programs wrote."""

from __future__ import annotations

import gzip
import re
import struct
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest
from test_parquet import table

PAGE = Path(__file__).parents[4] / "docs" / "FILES.md"


def masked(data: bytes) -> bytes:
    """The masked CRC-32C that TFRecord files have."""
    crc = 0xFFFFFFFF
    for b in data:
        crc ^= b
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def part(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2, len(content)]) + content


def tfrecord(i: int) -> bytes:
    """A TFRecord record: a tf.Example with an int64, a float and a text."""
    packed = bytes([i & 127 | 128, i >> 7])
    lists = {
        b"id": part(3, part(1, packed)),
        b"x": part(2, part(1, struct.pack("<f", i))),
        b"word": part(1, part(1, b"w")),
    }
    lists[b"emb"] = b"\x12\x22\x0a\x20" + struct.pack("<8f", *range(8))
    record = b"".join(part(1, part(1, name) + part(2, value)) for name, value in lists.items())
    record = part(1, record)
    length = struct.pack("<Q", len(record))
    return length + masked(length) + record + masked(record)


def message(i: int) -> bytes:
    """A delimited Protobuf message: its length, then an int64, a text and three floats."""
    text = b"\x08" + bytes([i & 127 | 128, i >> 7]) + part(2, b"w") + part(3, struct.pack("<3f", i, 1, 2))
    return bytes([len(text)]) + text


AVRO = {
    "type": "record",
    "name": "R",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "word", "type": "string"},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "when", "type": "long"},
    ],
}

# test_s3.py has the example on S3, which needs a server.
EXAMPLES = [e for e in re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.S) if "s3://" not in e]


def write(data: Path) -> None:
    text = b"id,text\n" + b"".join(b"%d,row %d\n" % (i, i) for i in range(1000))
    (data / "a.csv.gz").write_bytes(gzip.compress(text))
    (data / "export").write_bytes(gzip.compress(text))
    (data / "a.tfrecord").write_bytes(b"".join(map(tfrecord, range(1000))))
    (data / "a.pb").write_bytes(b"".join(map(message, range(1000))))
    pq.write_table(table(0, 1000), data / "a.parquet")
    with open(data / "a.avro", "wb") as f:
        fastavro.writer(f, AVRO, ({"id": i, "word": "w", "tags": ["t"] * (i % 3), "when": i} for i in range(1000)))
    day = data / "dt=2026-11-22" / "hour=07" / "country=de"
    day.mkdir(parents=True)
    (day / "a.parquet").write_bytes((data / "a.parquet").read_bytes())


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
        if rows == 1000 and sys.argv[2] == "never":
            break
print("rows", rows)
"""
    name = re.search(r"^name: (\w+)", EXAMPLES[number], re.M)
    assert name
    end = "never" if "end: never" in EXAMPLES[number] else ""
    assert "rows 1000" in job.helper(read, name[1], end).ended()
