"""The same job as a plain Kafka consumer group. `headrace demo --source kafka` compares
train.py with it.

Headrace delivers none of its records: this is the loop of confluent-kafka's own
examples, with batches. Every trainer is a consumer of one group, which gives each some
partitions. Settings that are not named here have the library's defaults.

    python train_group.py --brokers 127.0.0.1:9092 --topic clicks --group trainers

`--commit auto` is the default: every 5 s librdkafka commits the offsets of the records
that consume() has returned. If a process is killed, another learns again from what it
learned after the last commit. Records that it had taken before a commit and not learned
yet are lost.

`--commit each` is the careful way: no automatic commits, and a synchronous commit after
each batch that is in the model. Nothing is lost, a batch that was learned and not
committed comes again, and each batch waits for the broker.

The model, the pace and the journal are train.py's; the journal's checksums are over the
records' bytes.
"""

from __future__ import annotations

import argparse
import sys
import time

from confluent_kafka import Consumer, KafkaException, TopicPartition
from rival import Record, Rival, arguments


def main() -> int:
    parser = argparse.ArgumentParser(description="Learn click-through rate as a plain consumer group.")
    parser.add_argument("--brokers", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of librdkafka")
    parser.add_argument("--commit", choices=["auto", "each"], default="auto", help="each: after each batch")
    args = arguments(parser)

    rival = Rival(args)
    settings = {"bootstrap.servers": args.brokers, "group.id": args.group, "auto.offset.reset": "earliest"}
    if args.commit == "each":
        settings["enable.auto.commit"] = "false"
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
        if args.commit == "each" and records:
            commit(consumer)


def commit(consumer: Consumer) -> None:
    """Commits the records that consume() has returned: all of them are in the model now."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as e:  # another member has the partitions, or the broker is away: the batch comes again
        print(f"commit: {e}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
