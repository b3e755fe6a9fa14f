"""Writes the files of this folder: python make.py FOLDER. Written with pyarrow 26.0.1, which gives the columns of a row
group without rows a data_page_offset of 0."""

from __future__ import annotations

import sys

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])


def table(first: int, rows: int) -> pa.Table:
    return pa.table([list(range(first, first + rows)), [["a"]] * rows], schema=SCHEMA)


def write(name: str, *groups: pa.Table) -> None:
    with pq.ParquetWriter(f"{sys.argv[1]}/{name}.parquet", SCHEMA) as w:
        for group in groups:
            w.write_table(group)


same = pa.table([[7] * 300_000, [["a"]] * 300_000], schema=SCHEMA)  # more rows than a segment has
pq.write_table(table(0, 0), f"{sys.argv[1]}/all.parquet")
write("nogroup")
write("first", table(0, 0), table(0, 3))
write("between", table(0, 2), table(0, 0), table(2, 3), table(0, 0))
write("last", same, table(0, 0))
