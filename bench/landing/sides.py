"""A producer or a reader of bench.py.

    python sides.py push landing|kafka WHERE RECORDS RATE
    python sides.py read landing|kafka WHERE RECORDS OUT

WHERE is a broker; HEADRACE_STATE and HEADRACE_AGENT say where the landing is. A rate of 0 is as fast as
possible. A reader prints `ready`, and a JSON object when it has all records. It writes their ages in ms
to OUT (.npy).
"""

from __future__ import annotations

import json
import struct
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np

PER_TRANSACTION, EVERY = 10_000, 0.1
RECORD = np.dtype([("at", "<i8"), ("id", "<i8"), ("x", "<f4", 46)])
REST = np.random.default_rng(1).random(46, np.float32).tobytes()


def to_landing(_where: str) -> Callable[[list[bytes]], None]:
    import headrace

    pusher = headrace.Pusher("events")

    def push(records: list[bytes]) -> None:
        with pusher.begin() as t:
            for r in records:
                t.push(r)

    return push


def to_kafka(where: str) -> Callable[[list[bytes]], None]:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": where, "acks": "all"})

    def push(records: list[bytes]) -> None:
        for r in records:
            producer.produce("events", r)
        if producer.flush(60):
            raise SystemExit("Kafka has not taken all records")

    return push


def push(which: str, where: str, records: int, rate: int) -> None:
    send = {"landing": to_landing, "kafka": to_kafka}[which](where)
    first, cpu, n = time.time(), time.process_time(), 0
    while n < records:
        due = min(records, int((time.time() - first) * rate) if rate else n + PER_TRANSACTION)
        batch = [struct.pack("<qq", time.time_ns(), i) + REST for i in range(n, due)]
        if batch:
            send(batch)
        n = due
        if rate:
            time.sleep(max(0.0, EVERY - (time.time() - first) % EVERY))
    print(json.dumps({"first": first, "last": time.time(), "cpu": time.process_time() - cpu}))


def from_landing(_where: str) -> Iterator[np.ndarray]:
    import headrace

    with headrace.dataset("events").batches(1024, max_wait=0.01) as stream:
        print("ready", flush=True)
        for b in stream:
            yield b["at"]
            stream.step()


def from_kafka(where: str) -> Iterator[np.ndarray]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": where, "group.id": f"bench-landing-{time.monotonic_ns()}"})
    parts = [
        TopicPartition("events", p) for p in consumer.list_topics("events", timeout=10).topics["events"].partitions
    ]
    for p in parts:
        p.offset = consumer.get_watermark_offsets(p, timeout=10)[1]
    consumer.assign(parts)
    print("ready", flush=True)
    while True:
        messages = consumer.consume(1024, timeout=0.01)
        if messages:
            yield np.frombuffer(b"".join([m.value() for m in messages]), RECORD)["at"]


def read(which: str, where: str, records: int, out: str) -> None:
    ages: list[np.ndarray] = []
    n, cpu = 0, 0.0
    for at in {"landing": from_landing, "kafka": from_kafka}[which](where):
        cpu = cpu or time.process_time()
        ages.append((time.time_ns() - at) / 1e6)
        n += len(at)
        if n >= records:
            break
    np.save(out, np.concatenate(ages))
    print(json.dumps({"last": time.time(), "cpu": time.process_time() - cpu}))


if __name__ == "__main__":
    side, which, where, records, last = sys.argv[1:]
    if side == "push":
        push(which, where, int(records), int(last))
    else:
        read(which, where, int(records), last)
