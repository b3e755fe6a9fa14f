"""The same job as a plain Kafka consumer group with automatic commits: what
train.py is compared with by `headrace demo --source kafka`.

Nothing of Headrace delivers its records: this is the loop of confluent-kafka's own
examples, with batches. Every trainer is a consumer of one group; the group gives
each some partitions; librdkafka commits, every 5 s, the offsets of what consume()
has returned. Settings that are not named are the library's defaults.

    python train_group.py --brokers 127.0.0.1:9092 --topic clicks --group trainers

So what a process that is killed has learned since the last commit is learned again
by another, and what it had taken and not learned yet when a commit was sent is not
learned by anybody. The model, the pace and the journal are train.py's; the
journal's checksums are over the records' bytes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import zlib

import numpy as np
from confluent_kafka import Consumer, Message, TopicPartition
from train import BUCKETS, CATEGORIES, INTEGERS, Journal, Pace, SharedModel


def decode(values: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of Criteo's TSV: dense (rows, 13), cat (rows, 26), label (rows,)."""
    rows = [value.split(b"\t") for value in values]
    label = np.array([row[0] == b"1" for row in rows], np.float32)
    dense = np.array([[float(x) if x else -1.0 for x in row[1 : 1 + INTEGERS]] for row in rows], np.float32)
    hashed = [[zlib.crc32(x) % BUCKETS for x in row[1 + INTEGERS :]] for row in rows]
    return dense, np.array(hashed, np.int64).reshape(len(rows), CATEGORIES), label


def write_yielded(journal: Journal, number: int, messages: list[Message], values: list[bytes]) -> None:
    runs: list[tuple[int, int]] = []
    for m in messages:
        name = f"{m.topic()}/{m.partition()}"
        file = journal.name((name, 0), name)
        if runs and runs[-1][0] == file:
            runs[-1] = (file, runs[-1][1] + 1)
        else:
            runs.append((file, 1))
    offsets = np.array([m.offset() for m in messages], np.int64)
    checks = np.array([zlib.crc32(v) for v in values], np.uint64)
    journal.yielded_rows(number, runs, offsets, checks)


def main() -> int:
    parser = argparse.ArgumentParser(description="Learn click-through rate as a plain consumer group.")
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of librdkafka")
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--model", required=True, help="file of the shared model")
    parser.add_argument("--rows", type=int, default=512, help="rows per batch, at most (default 512)")
    parser.add_argument("--rate", type=float, default=0, help="at most this many rows/s (default: no limit)")
    parser.add_argument("--journal", help="write down here what was done with each record")
    args = parser.parse_args()

    model, journal, pace = SharedModel(args.model), Journal(args.journal), Pace(args.rate)
    journal.open(rank=args.rank, pid=os.getpid(), rate=args.rate, batch_rows=args.rows, check="crc32")
    settings = {"bootstrap.servers": args.brokers, "group.id": args.group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **dict(s.split("=", 1) for s in args.set)})
    ready = False

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        nonlocal ready
        if partitions and not ready:
            ready = True
            journal.write(Journal.READY)

    consumer.subscribe([args.topic], on_assign=assigned)
    number = 0
    while True:
        asked = time.monotonic()
        messages = consumer.consume(args.rows, timeout=1.0)
        for m in messages:
            if m.error() is not None:
                print(f"consume: {m.error()}", flush=True)
        messages = [m for m in messages if m.error() is None]
        if not messages:
            continue
        number += 1
        pace.got(len(messages), time.monotonic() - asked)
        values = [m.value() or b"" for m in messages]
        write_yielded(journal, number, messages, values)
        dense, cat, label = decode(values)
        pace.wait()
        journal.write(Journal.BEGIN, number)
        p = model.learn(dense, cat, label)
        journal.write(Journal.APPLIED, number, len(messages), p.astype(np.float32).tobytes())


if __name__ == "__main__":
    sys.exit(main())
