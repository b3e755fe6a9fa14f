"""The readers that bench.py measures: one per process, Kafka to numpy batches.

    python readers.py WHICH FORM BROKER RECORDS [check]

FORM is a topic of records that the broker has: `floats` (125 float32 each, 500
bytes), `tsv` and `json` (a label, 13 numbers, 26 categories). Each reader gives
the same arrays, floats (n, 125) or label (n,), dense (n, 13), cat (n, 26), and
steps over RECORDS records. It prints rows, wall and CPU seconds of this process
from before it opens its dataset or assigns its partitions, whose numbers it knows
by then. With `check` it also sums all floats. That costs more than some of the readers, so timed
runs do without it.

headrace   the product: a running agent, `stream.step()` after each batch of 1,024. Its
           time ends when all steps are durable.
ordinary   as most programs do it: confluent-kafka with its default settings,
           consume(1000), then np.frombuffer and np.stack, or split, or json.loads
           for each record. Categories are hashed with zlib.crc32.
tuned      the best that is known in Python: librdkafka that never pauses
           (fetch.queue.backoff.ms, queued.max.messages.kbytes), one join per
           batch, then np.frombuffer or pyarrow's readers. Categories are hashed
           by numpy, which is cheaper than XXH64 (bench/decode/contestants.py).
           TUNED_BATCH, records of a batch, is the best of 1,000 to 50,000.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "decode"))
from contestants import BUCKETS, CAT, DENSE, hash_strings, stepped

Arrays = tuple[np.ndarray, ...]

ROWS = 1024  # rows of headrace's batches
ORDINARY_BATCH = 1000
TUNED_BATCH = {"floats": 1000, "tsv": 5000, "json": 5000}
WIDTH = 125
TUNED = {"fetch.queue.backoff.ms": 10, "queued.max.messages.kbytes": 1048576}


class Headrace:
    def __init__(self, form: str, _broker: str) -> None:
        import headrace

        headrace.init()  # a training process does this once, before it reads
        self.dataset = headrace.dataset(form)
        self.columns = ["x"] if form == "floats" else ["label", "dense", "cat"]

    def batches(self) -> Iterator[Arrays]:
        with self.dataset.batches(ROWS) as stream:
            yield from stepped(stream, lambda b: tuple(b[c] for c in self.columns))


class Consumer:
    """confluent-kafka, assigned to all partitions from their beginning."""

    def __init__(self, form: str, broker: str, settings: dict[str, Any], size: int) -> None:
        from confluent_kafka import Consumer, TopicPartition

        group = f"bench-{form}-{time.monotonic_ns()}"
        self.consumer = Consumer(
            {"bootstrap.servers": broker, "group.id": group, "auto.offset.reset": "earliest", **settings}
        )
        topic = self.consumer.list_topics(form, timeout=10).topics[form]
        self.partitions = [TopicPartition(form, p, 0) for p in topic.partitions]
        self.size = size

    def messages(self) -> Iterator[list[Any]]:
        self.consumer.assign(self.partitions)
        while True:
            messages = self.consumer.consume(self.size, timeout=1.0)
            for m in messages:
                if m.error():
                    raise SystemExit(str(m.error()))
            if messages:
                yield messages


class Ordinary(Consumer):
    def __init__(self, form: str, broker: str) -> None:
        super().__init__(form, broker, {}, ORDINARY_BATCH)
        self.decode = {"floats": self.floats, "tsv": self.tsv, "json": self.json}[form]

    def batches(self) -> Iterator[Arrays]:
        for messages in self.messages():
            yield self.decode(messages)

    def floats(self, messages: list[Any]) -> Arrays:
        return (np.stack([np.frombuffer(m.value(), np.float32) for m in messages]),)

    def tsv(self, messages: list[Any]) -> Arrays:
        label, dense, cat = [], [], []
        for m in messages:
            f = m.value().split(b"\t")
            label.append(float(f[0]))
            dense.append([float(v) if v else 0.0 for v in f[1:14]])
            cat.append([zlib.crc32(v) & (BUCKETS - 1) for v in f[14:]])
        return np.array(label, np.float32), np.array(dense, np.float32), np.array(cat, np.int64)

    def json(self, messages: list[Any]) -> Arrays:
        label, dense, cat = [], [], []
        for m in messages:
            r = json.loads(m.value())
            label.append(float(r["label"]))
            dense.append([float(v) if (v := r[k]) is not None else 0.0 for k in DENSE])
            cat.append([zlib.crc32(r[k].encode()) & (BUCKETS - 1) for k in CAT])
        return np.array(label, np.float32), np.array(dense, np.float32), np.array(cat, np.int64)


class Tuned(Consumer):
    def __init__(self, form: str, broker: str) -> None:
        super().__init__(form, broker, TUNED, TUNED_BATCH[form])
        self.decode = {"floats": self.floats, "tsv": self.tsv, "json": self.json}[form]
        if form == "floats":
            return
        import pyarrow as pa
        import pyarrow.csv
        import pyarrow.json

        pa.set_cpu_count(1)
        pa.set_io_thread_count(1)
        types = {"label": pa.float32(), **dict.fromkeys(DENSE, pa.float32()), **dict.fromkeys(CAT, pa.string())}
        self.buffer = pa.py_buffer
        self.csv, self.pajson = pyarrow.csv, pyarrow.json
        self.csv_options = (
            pyarrow.csv.ReadOptions(use_threads=False, block_size=64 << 20, column_names=list(types)),
            pyarrow.csv.ParseOptions(delimiter="\t", quote_char=False),
            pyarrow.csv.ConvertOptions(column_types=types, strings_can_be_null=False),
        )
        schema = pa.schema(list(types.items()))
        self.json_options = (
            pyarrow.json.ReadOptions(use_threads=False, block_size=64 << 20),
            pyarrow.json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )

    def batches(self) -> Iterator[Arrays]:
        for messages in self.messages():
            yield self.decode([m.value() for m in messages])

    def floats(self, values: list[bytes]) -> Arrays:
        return (np.frombuffer(b"".join(values), np.float32).reshape(-1, WIDTH),)

    def tsv(self, values: list[bytes]) -> Arrays:
        return self.arrays(self.csv.read_csv(self.buffer(b"\n".join(values)), *self.csv_options))

    def json(self, values: list[bytes]) -> Arrays:
        return self.arrays(self.pajson.read_json(self.buffer(b"\n".join(values)), *self.json_options))

    def arrays(self, table: Any) -> Arrays:
        (batch,) = table.combine_chunks().to_batches()
        n = batch.num_rows
        dense = np.empty((n, len(DENSE)), np.float32)
        for i, name in enumerate(DENSE):
            dense[:, i] = batch.column(name).fill_null(0).to_numpy(zero_copy_only=False)
        cat = np.empty((n, len(CAT)), np.int64)
        for i, name in enumerate(CAT):
            cat[:, i] = hash_strings(batch.column(name))
        return batch.column("label").to_numpy(), dense, cat


READERS = {"headrace": Headrace, "ordinary": Ordinary, "tuned": Tuned}


def main() -> None:
    which, form, broker, records = *sys.argv[1:4], int(sys.argv[4])
    check = sys.argv[5:] == ["check"]
    reader = READERS[which](form, broker)
    width = WIDTH if form == "floats" else len(CAT)
    start, used = time.monotonic(), time.process_time()
    n, checksum = 0, 0.0
    with closing(reader.batches()) as batches:
        for arrays in batches:
            n += len(arrays[0])
            if arrays[-1].shape[1] != width:
                raise SystemExit(f"rows of {arrays[-1].shape}")
            if check:
                checksum += sum(float(a.sum(dtype=np.float64)) for a in arrays if a.dtype == np.float32)
            if n >= records:
                break
    seconds, cpu = time.monotonic() - start, time.process_time() - used
    print(json.dumps({"rows": n, "seconds": seconds, "cpu_seconds": cpu, "checksum": checksum}), flush=True)


if __name__ == "__main__":
    main()
