"""The same job as a plain Kafka consumer group: what
train.py is compared with by `headrace demo --source kafka`.

Nothing of Headrace delivers its records: this is the loop of confluent-kafka's own
examples, with batches. Every trainer is a consumer of one group; the group gives
each some partitions. Settings that are not named are the library's defaults.

    python train_group.py --brokers 127.0.0.1:9092 --topic clicks --group trainers

`--commit auto` is the default: librdkafka commits, every 5 s, the offsets of what
consume() has returned. So what a process that is killed has learned since the last commit is learned again
by another, and what it had taken and not learned yet when a commit was sent is not
learned by anybody.

`--commit each` is how careful people write it: no automatic commits, and a synchronous
commit behind each batch that is in the model. So nothing is lost, what was learned and
not yet committed comes again, and each batch waits for the broker.

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
    parser.add_argument("--commit", choices=["auto", "each"], default="auto", help="each: behind each batch")
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
    """Commits what consume() has returned: all of it is in the model now."""
    try:
        consumer.commit(asynchronous=False)
    except KafkaException as e:  # the partitions went to another, or nobody answers: it comes again
        print(f"commit: {e}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
