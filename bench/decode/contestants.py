"""What bench.py measures: one contestant per process, file to numpy batches.

    python contestants.py WHICH FORMAT FILE ROWS LIMIT

Each gives, in batches of ROWS rows (of the reader's own size for pyarrow), the
same arrays: label float32 (n,), dense float32 (n, 13) with 0 where the
input has none, cat int64 (n, 26) below 2**20. It prints rows, wall and CPU
seconds of this process from before the first byte is read, and a checksum (whose
cost is not counted).

headrace      the product: a running agent, `stream.step()` after each batch, also
              after the last one; its time ends when all steps are durable.
              Categories are hashed by the decoder (XXH64).
pyarrow       pyarrow's streaming reader on one thread, then numpy. Categories
              are hashed by numpy on the 8 bytes of each string, three multiplies
              and a mask: less work than XXH64, and only possible because all
              of them have 8 bytes.
pyarrow_raw   the same without categories: they stay Arrow strings, which cannot be
              trained on. This is the cost of the reader alone.
python        split or json.loads per record, float() per number, zlib.crc32 per
              category: the cheapest hash that Python has.
"""

from __future__ import annotations

import json
import sys
import time
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # bench.py in this folder hides the package bench
from stepped import stepped

Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]

BUCKETS = 1 << 20
DENSE = [f"I{i}" for i in range(1, 14)]
CAT = [f"C{i}" for i in range(1, 27)]


def headrace_batches(form: str, _path: str, rows: int) -> Iterator[Arrays]:
    import headrace

    with headrace.dataset(f"clicks_{form}").batches(rows) as stream:
        yield from stepped(stream, lambda b: (b["label"], b["dense"], b["cat"]))


def hash_strings(column: Any) -> np.ndarray:
    """The strings of an Arrow column, all of 8 bytes, to buckets."""
    _, offsets, data = column.buffers()
    n, first = len(column), column.offset
    ends = np.frombuffer(offsets, np.int32)[first : first + n + 1]
    if int(ends[-1] - ends[0]) != 8 * n:
        raise SystemExit("a category is not 8 bytes long")
    h = np.frombuffer(data, np.uint64, count=n, offset=int(ends[0])).copy()
    h *= np.uint64(14029467366897019727)
    h ^= h >> np.uint64(29)
    h *= np.uint64(1609587929392839161)
    h ^= h >> np.uint64(32)
    h &= np.uint64(BUCKETS - 1)
    return h.view(np.int64)


def pyarrow_batches(form: str, path: str, rows: int, hashed: bool = True) -> Iterator[Arrays]:
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    types = {"label": pa.float32(), **dict.fromkeys(DENSE, pa.float32()), **dict.fromkeys(CAT, pa.string())}
    if form == "tsv":
        from pyarrow import csv

        reader = csv.open_csv(
            path,
            csv.ReadOptions(use_threads=False, block_size=1 << 20, column_names=list(types)),
            csv.ParseOptions(delimiter="\t", quote_char=False),
            csv.ConvertOptions(column_types=types, strings_can_be_null=False),
        )
    else:
        from pyarrow import json as pajson

        reader = pajson.open_json(
            path,
            pajson.ReadOptions(use_threads=False, block_size=1 << 20),
            pajson.ParseOptions(explicit_schema=pa.schema(list(types.items())), unexpected_field_behavior="ignore"),
        )
    for batch in reader:
        n = batch.num_rows
        dense = np.empty((n, len(DENSE)), np.float32)
        for i, name in enumerate(DENSE):
            dense[:, i] = batch.column(name).fill_null(0).to_numpy(zero_copy_only=False)
        cat = np.zeros((n, len(CAT)) if hashed else (0, len(CAT)), np.int64)
        if hashed:
            for i, name in enumerate(CAT):
                cat[:, i] = hash_strings(batch.column(name))
        yield batch.column("label").to_numpy(), dense, cat


def python_batches(form: str, path: str, rows: int) -> Iterator[Arrays]:
    label, dense, cat = [], [], []
    with open(path, "rb") as lines:
        for line in lines:
            if form == "tsv":
                f = line.rstrip(b"\n").split(b"\t")
                label.append(float(f[0]))
                dense.append([float(v) if v else 0.0 for v in f[1:14]])
                cat.append([zlib.crc32(v) & (BUCKETS - 1) for v in f[14:]])
            else:
                r = json.loads(line)
                label.append(float(r["label"]))
                dense.append([float(v) if (v := r[k]) is not None else 0.0 for k in DENSE])
                cat.append([zlib.crc32(r[k].encode()) & (BUCKETS - 1) for k in CAT])
            if len(label) == rows:
                yield np.array(label, np.float32), np.array(dense, np.float32), np.array(cat, np.int64)
                label, dense, cat = [], [], []
    if label:
        yield np.array(label, np.float32), np.array(dense, np.float32), np.array(cat, np.int64)


def main() -> None:
    which, form, path, rows, limit = *sys.argv[1:4], int(sys.argv[4]), int(sys.argv[5])
    if which == "headrace":
        import headrace

        headrace.init()  # a training process does this once, before it reads
        batches = headrace_batches(form, path, rows)
    elif which.startswith("pyarrow"):
        import pyarrow.csv
        import pyarrow.json  # noqa: F401  (so that importing is not measured)

        batches = pyarrow_batches(form, path, rows, hashed=which == "pyarrow")
    else:
        batches = python_batches(form, path, rows)
    # The cost of the checksum is subtracted, for all contestants.
    start, used = time.monotonic(), time.process_time()
    n, checksum, checks = 0, 0.0, 0.0
    with closing(batches):
        for label, dense, cat in batches:
            n += len(label)
            before = time.process_time()
            checksum += float(label.sum()) + float(dense.sum(dtype=np.float64))
            if cat.size and not (0 <= int(cat[0, 0]) < BUCKETS and cat.shape[1] == len(CAT)):
                raise SystemExit("a category is not below 2**20")
            checks += time.process_time() - before
            if n >= limit:
                break
    seconds, cpu = time.monotonic() - start - checks, time.process_time() - used - checks
    print(json.dumps({"rows": n, "seconds": seconds, "cpu_seconds": cpu, "checksum": checksum}))


if __name__ == "__main__":
    main()
