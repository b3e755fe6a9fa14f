"""A plain consumer group with automatic commits, for the chaos test. Many training scripts work
like this. Its journal is its model, as with the trainers of --journal.

Another script can take its place. It gets a JSON object in CHAOS_GROUP. It reads `topic` of
`brokers` as a member of the group `group` with `settings`, in batches of `rows`, at `rate` rows
per second. A thread reads `prefetch` batches ahead, as data loaders do (0: none). It learns from
each batch, and writes into the file `journal` what it does, in the format of journal.go: YIELDED
with the ids of a batch, and APPLIED when the batch is in the model. It ends on SIGTERM.
"""

import json
import os
import queue
import struct
import sys
import threading
import time

import numpy as np
from confluent_kafka import Consumer

START, YIELDED, APPLIED, BAD = 1, 2, 3, 9

cfg = json.loads(os.environ["CHAOS_GROUP"])
journal = os.open(cfg["journal"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)


def write(kind, number=0, keys=b""):
    entry = struct.pack("<4sHHIIqqq", b"CHJ1", kind, 1, len(keys) // 8, 0, number, 0, time.monotonic_ns()) + keys
    if os.write(journal, entry) != len(entry):
        raise OSError("the journal's disk is full")


def mix(ids):
    """The check value that each record carries beside its id."""
    z = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((z ^ (z >> np.uint64(29))) >> np.uint64(1)).astype(np.int64)


def batches():
    """Batches of records, for ever."""
    consumer = Consumer({"bootstrap.servers": cfg["brokers"], "group.id": cfg["group"],
                         "auto.offset.reset": "earliest", **cfg["settings"]})
    consumer.subscribe([cfg["topic"]])
    while True:
        messages = consumer.consume(cfg["rows"], timeout=1.0)
        for m in messages:
            if m.error() is not None:
                print(f"consume: {m.error()}", flush=True)
        records = [json.loads(m.value()) for m in messages if m.error() is None]
        if records:
            yield records


def ahead(batches, most):
    """The same batches, read ahead by a thread: up to `most` of them are ready."""
    ready = queue.Queue(most)

    def read():
        for records in batches:
            ready.put(records)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield ready.get()


def main():
    write(START, os.getpid())
    source = ahead(batches(), cfg["prefetch"]) if cfg["prefetch"] else batches()
    for number, records in enumerate(source, 1):
        ids = np.array([r["id"] for r in records], np.int64)
        if not np.array_equal(mix(ids), np.array([r["check"] for r in records], np.int64)):
            write(BAD)
        write(YIELDED, number, ids.tobytes())
        time.sleep(len(records) / cfg["rate"])
        write(APPLIED, number)


if __name__ == "__main__":
    sys.exit(main())
