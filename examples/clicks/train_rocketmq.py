"""The same job on RocketMQ's own Go client: what train.py is compared with by
`headrace demo --source rocketmq`.

Nothing of Headrace delivers its records. RocketMQ has no Python client that is kept
up, so the official Go client reads: a push consumer, which commits offsets by itself
every 5 s and writes the messages to a pipe (internal/proof/demo/pushconsumer).
Settings are the library's defaults.

    python train_rocketmq.py --consumer "headrace demo push-consumer" \\
        --name-server 127.0.0.1:9876 --topic clicks --broker broker-a --group trainers

So what a process that is killed has learned since the last commit is learned again
by another, and what lay in the pipe when a commit was sent is not learned by anybody.
The model, the pace and the journal are train.py's; the journal's checksums are over
the records' bytes.
"""

from __future__ import annotations

import argparse
import os
import queue
import shlex
import struct
import subprocess
import sys
import threading
import time
import zlib
from typing import BinaryIO, NamedTuple

import numpy as np
from train import BUCKETS, CATEGORIES, INTEGERS, Journal, Pace, SharedModel

HEADER = struct.Struct("<IQI")  # queue, offset, length of the body
ASSIGNED = 2**32 - 1  # in place of a length: no message, the consumer has got queues


class Message(NamedTuple):
    queue: int
    offset: int
    body: bytes


def decode(values: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of Criteo's TSV: dense (rows, 13), cat (rows, 26), label (rows,)."""
    rows = [value.split(b"\t") for value in values]
    label = np.array([row[0] == b"1" for row in rows], np.float32)
    dense = np.array([[float(x) if x else -1.0 for x in row[1 : 1 + INTEGERS]] for row in rows], np.float32)
    hashed = [[zlib.crc32(x) % BUCKETS for x in row[1 + INTEGERS :]] for row in rows]
    return dense, np.array(hashed, np.int64).reshape(len(rows), CATEGORIES), label


def read(pipe: BinaryIO, journal: Journal, messages: queue.Queue[Message | None]) -> None:
    """Until the consumer ends."""
    while header := pipe.read(HEADER.size):
        number, offset, length = HEADER.unpack(header)
        if length == ASSIGNED:
            journal.write(Journal.READY)
            continue
        messages.put(Message(number, offset, pipe.read(length)))
    messages.put(None)


def take(messages: queue.Queue[Message | None], rows: int) -> list[Message]:
    """Up to so many messages: those that come within a second."""
    taken: list[Message] = []
    until = time.monotonic() + 1.0
    while len(taken) < rows:
        try:
            one = messages.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        if one is None:
            raise SystemExit("the consumer has ended")
        taken.append(one)
    return taken


def write_yielded(journal: Journal, number: int, partition: str, messages: list[Message]) -> None:
    runs: list[tuple[int, int]] = []
    for m in messages:
        name = partition % m.queue
        file = journal.name((name, 0), name)
        if runs and runs[-1][0] == file:
            runs[-1] = (file, runs[-1][1] + 1)
        else:
            runs.append((file, 1))
    offsets = np.array([m.offset for m in messages], np.int64)
    checks = np.array([zlib.crc32(m.body) for m in messages], np.uint64)
    journal.yielded_rows(number, runs, offsets, checks)


def main() -> int:
    parser = argparse.ArgumentParser(description="Learn click-through rate from RocketMQ's push consumer.")
    parser.add_argument("--consumer", required=True, help="command of the push consumer")
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--broker", required=True, help="the topic's broker")
    parser.add_argument("--group", required=True)
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--model", required=True, help="file of the shared model")
    parser.add_argument("--rows", type=int, default=512, help="rows per batch, at most (default 512)")
    parser.add_argument("--rate", type=float, default=0, help="at most this many rows/s (default: no limit)")
    parser.add_argument("--journal", help="write down here what was done with each record")
    args = parser.parse_args()

    model, journal, pace = SharedModel(args.model), Journal(args.journal), Pace(args.rate)
    journal.open(rank=args.rank, pid=os.getpid(), rate=args.rate, batch_rows=args.rows, check="crc32")
    # It ends when we do, however we end: its input ends then.
    consumer = subprocess.Popen(
        [*shlex.split(args.consumer), "--name-server", args.name_server, "--topic", args.topic, "--group", args.group,
         "--instance", f"trainer-{args.rank}-{os.getpid()}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert consumer.stdout is not None
    messages: queue.Queue[Message | None] = queue.Queue(2 * args.rows)  # then the pipe fills, and the consumer waits
    threading.Thread(target=read, args=(consumer.stdout, journal, messages), daemon=True).start()
    partition = f"{args.topic}/{args.broker}/%d"
    number = 0
    while True:
        asked = time.monotonic()
        batch = take(messages, args.rows)
        if not batch:
            continue
        number += 1
        pace.got(len(batch), time.monotonic() - asked)
        values = [m.body for m in batch]
        write_yielded(journal, number, partition, batch)
        dense, cat, label = decode(values)
        pace.wait()
        journal.write(Journal.BEGIN, number)
        p = model.learn(dense, cat, label)
        journal.write(Journal.APPLIED, number, len(batch), p.astype(np.float32).tobytes())


if __name__ == "__main__":
    sys.exit(main())
