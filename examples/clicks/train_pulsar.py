"""The same job on Pulsar's own client: what train.py is compared with by
`headrace demo --source pulsar`.

Nothing of Headrace delivers its records: this is the loop of pulsar-client's own
examples, with batches. Every trainer is a consumer of one shared subscription, and
acknowledges each message when the model has it. Settings that are not named are the
library's defaults.

    python train_pulsar.py --service pulsar://127.0.0.1:6650 --topic clicks --subscription trainers

So what a process that is killed has learned and not acknowledged is learned again by
another, and so is all of a producer's batch of which one message was not acknowledged.
The model, the pace and the journal are train.py's; the journal's checksums are over
the records' bytes.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import zlib

import numpy as np
import pulsar
from train import BUCKETS, CATEGORIES, INTEGERS, Journal, Pace, SharedModel


def decode(values: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of Criteo's TSV: dense (rows, 13), cat (rows, 26), label (rows,)."""
    rows = [value.split(b"\t") for value in values]
    label = np.array([row[0] == b"1" for row in rows], np.float32)
    dense = np.array([[float(x) if x else -1.0 for x in row[1 : 1 + INTEGERS]] for row in rows], np.float32)
    hashed = [[zlib.crc32(x) % BUCKETS for x in row[1 + INTEGERS :]] for row in rows]
    return dense, np.array(hashed, np.int64).reshape(len(rows), CATEGORIES), label


def write_yielded(journal: Journal, number: int, messages: list[pulsar.Message], values: list[bytes]) -> None:
    runs: list[tuple[int, int]] = []
    for m in messages:
        name = m.topic_name().rsplit("/", 1)[-1]
        file = journal.name((name, 0), name)
        if runs and runs[-1][0] == file:
            runs[-1] = (file, runs[-1][1] + 1)
        else:
            runs.append((file, 1))
    # The producer has put a record's number in its partition into its key.
    offsets = np.array([int(m.partition_key()) for m in messages], np.int64)
    checks = np.array([zlib.crc32(v) for v in values], np.uint64)
    journal.yielded_rows(number, runs, offsets, checks)


def receive(consumer: pulsar.Consumer, rows: int) -> list[pulsar.Message]:
    """Up to so many messages: those that come within a second."""
    messages: list[pulsar.Message] = []
    until = time.monotonic() + 1.0
    while len(messages) < rows:
        left = int((until - time.monotonic()) * 1000)
        if left <= 0:
            break
        try:
            messages.append(consumer.receive(timeout_millis=left))
        except pulsar.Timeout:
            break
    return messages


def main() -> int:
    parser = argparse.ArgumentParser(description="Learn click-through rate from a shared subscription.")
    parser.add_argument("--service", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--subscription", required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--model", required=True, help="file of the shared model")
    parser.add_argument("--rows", type=int, default=512, help="rows per batch, at most (default 512)")
    parser.add_argument("--rate", type=float, default=0, help="at most this many rows/s (default: no limit)")
    parser.add_argument("--journal", help="write down here what was done with each record")
    args = parser.parse_args()

    model, journal, pace = SharedModel(args.model), Journal(args.journal), Pace(args.rate)
    journal.open(rank=args.rank, pid=os.getpid(), rate=args.rate, batch_rows=args.rows, check="crc32")
    client = pulsar.Client(args.service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    consumer = client.subscribe(
        args.topic,
        args.subscription,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    journal.write(Journal.READY)
    number = 0
    while True:
        asked = time.monotonic()
        messages = receive(consumer, args.rows)
        if not messages:
            continue
        number += 1
        pace.got(len(messages), time.monotonic() - asked)
        values = [m.data() for m in messages]
        write_yielded(journal, number, messages, values)
        dense, cat, label = decode(values)
        pace.wait()
        journal.write(Journal.BEGIN, number)
        p = model.learn(dense, cat, label)
        journal.write(Journal.APPLIED, number, len(messages), p.astype(np.float32).tobytes())
        for m in messages:
            consumer.acknowledge(m)


if __name__ == "__main__":
    sys.exit(main())
