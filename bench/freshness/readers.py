"""The readers that bench.py measures: one per process, from the end of a topic on.

    python readers.py WHICH BROKER WARMUP SECONDS RATE OUT     (a Pulsar's two addresses are one BROKER)

Each takes batches of up to 256 records. No record waits longer than 10 ms for others. The reader
notes how old each record is when its batch is there as numpy arrays: the record has the wall clock of
its producer, in ns. It prints one JSON object with rows, batches and the CPU seconds of this process,
and writes the ages in ms to OUT (.npy), without those of the first WARMUP seconds. The warm-up ends
when nine tenths of RATE records have come within a second and none was older than a second, or
after READY seconds. A reader of many partitions finds them one after the other, and each has
records that were written before that.

headrace    the product: a running agent, `batches(256, max_wait=0.01)`, a step per batch
confluent   confluent-kafka with default settings, consume(256, timeout=0.01), and one
            np.frombuffer for all of its values
pulsar      pulsar-client with default settings, batch_receive() of as many messages in as
            long a time, one cumulative acknowledgement per partition and batch
"""

from __future__ import annotations

import json
import sys
import time
from collections import deque
from collections.abc import Iterator

import numpy as np

ROWS, WAIT = 256, 0.01
READY = 180.0  # seconds
RECORD = np.dtype([("at", "<i8"), ("id", "<i8")])


def headrace_batches(_broker: str) -> Iterator[np.ndarray]:
    import headrace

    with headrace.dataset("events").batches(ROWS, max_wait=WAIT) as stream:
        for b in stream:
            yield b["at"]
            stream.step()


def confluent_batches(broker: str) -> Iterator[np.ndarray]:
    from confluent_kafka import OFFSET_END, Consumer, TopicPartition

    group = f"bench-freshness-{time.monotonic_ns()}"
    consumer = Consumer({"bootstrap.servers": broker, "group.id": group})
    topic = consumer.list_topics("events", timeout=10).topics["events"]
    consumer.assign([TopicPartition("events", p, OFFSET_END) for p in topic.partitions])
    while True:
        messages = consumer.consume(ROWS, timeout=WAIT)
        if messages:
            yield np.frombuffer(b"".join([m.value() for m in messages]), RECORD)["at"]


def pulsar_batches(broker: str) -> Iterator[np.ndarray]:
    import pulsar

    client = pulsar.Client(broker.split()[0], logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Error))
    policy = pulsar.ConsumerBatchReceivePolicy(ROWS, -1, int(1000 * WAIT))
    consumer = client.subscribe("events", f"bench-freshness-{time.monotonic_ns()}", batch_receive_policy=policy)
    while True:
        if messages := consumer.batch_receive():
            for last in {m.topic_name(): m for m in messages}.values():
                consumer.acknowledge_cumulative(last)
            yield np.frombuffer(b"".join([m.data() for m in messages]), RECORD)["at"]


def main() -> None:
    which, broker, warmup, seconds, rate, out = sys.argv[1:]
    readers = {"headrace": headrace_batches, "confluent": confluent_batches, "pulsar": pulsar_batches}
    batches = readers[which](broker)
    ages: list[np.ndarray] = []
    first, cpu, begins = 0.0, 0.0, 0.0
    second: deque[tuple[float, int, int]] = deque()  # batches of the last second: time, rows, oldest age
    for at in batches:
        now = time.time_ns()
        clock = time.monotonic()
        if not first:
            first = clock
        if not begins:
            second.append((clock, len(at), now - int(at.min())))
            while clock - second[0][0] > 1:
                second.popleft()
            rows, oldest = sum(s[1] for s in second), max(s[2] for s in second)
            ready = (rows >= 0.9 * float(rate) and oldest < 1e9) or clock - first > READY
            if clock - first >= float(warmup) and ready:
                begins = clock
            cpu = time.process_time()
            continue
        ages.append(now - at)
        if clock - begins > float(seconds):
            break
    np.save(out, np.concatenate(ages) / 1e6)
    used = time.process_time() - cpu
    print(json.dumps({"batches": len(ages), "cpu_seconds": used, "ready_seconds": begins - first}))


if __name__ == "__main__":
    main()
