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
import sys
import time

from confluent_kafka import Consumer, TopicPartition
from rival import Record, Rival, arguments


def main() -> int:
    parser = argparse.ArgumentParser(description="Learn click-through rate as a plain consumer group.")
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of librdkafka")
    args = arguments(parser)

    rival = Rival(args)
    settings = {"bootstrap.servers": args.brokers, "group.id": args.group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, **dict(s.split("=", 1) for s in args.set)})
    ready = False

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        nonlocal ready
        if partitions and not ready:
            ready = True
            rival.ready()

    consumer.subscribe([args.topic], on_assign=assigned)
    while True:
        asked, records = time.monotonic(), []
        for m in consumer.consume(args.rows, timeout=1.0):
            if m.error() is not None:
                print(f"consume: {m.error()}", flush=True)
                continue
            records.append(Record(f"{m.topic()}/{m.partition()}", m.offset(), m.value() or b""))
        rival.learn(asked, records)


if __name__ == "__main__":
    sys.exit(main())
