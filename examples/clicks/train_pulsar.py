"""The same job on Pulsar's own client. `headrace demo --source pulsar` compares
train.py with it.

Headrace delivers none of its records: this is the loop of pulsar-client's own
examples, with batches. Every trainer is a consumer of one shared subscription, and
acknowledges each message when it is in the model. Settings that are not named here have
the library's defaults.

    python train_pulsar.py --service pulsar://127.0.0.1:6650 --topic clicks --subscription trainers

If a process is killed, another learns again from the messages that it learned and had not
acknowledged. If one message of a producer's batch is not acknowledged, the whole batch
comes again. The model, the pace and the journal are train.py's. The journal's checksums
are over the bytes of the records.
"""

from __future__ import annotations

import argparse
import sys
import time

import pulsar
from rival import Record, Rival, arguments


def receive(consumer: pulsar.Consumer, rows: int) -> list[pulsar.Message]:
    """Up to `rows` messages: those that come within a second."""
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
    args = arguments(parser)

    rival = Rival(args)
    client = pulsar.Client(args.service, logger=pulsar.ConsoleLogger(pulsar.LoggerLevel.Warn))
    consumer = client.subscribe(
        args.topic,
        args.subscription,
        consumer_type=pulsar.ConsumerType.Shared,
        initial_position=pulsar.InitialPosition.Earliest,
    )
    rival.ready()
    while True:
        asked = time.monotonic()
        messages = receive(consumer, args.rows)
        # The producer has put a record's number in its partition into its key.
        records = [Record(m.topic_name().rsplit("/", 1)[-1], int(m.partition_key()), m.data()) for m in messages]
        rival.learn(asked, records)
        for m in messages:
            consumer.acknowledge(m)


if __name__ == "__main__":
    sys.exit(main())
