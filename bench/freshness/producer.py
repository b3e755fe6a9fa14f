"""Produces records at a fixed rate until it is killed: producer.py BROKER RATE PARTITIONS

A record is its producer's wall clock in ns and its number, 16 bytes. librdkafka writes them with its
default settings (linger.ms 5). Each millisecond it makes the records that are due, and reads the clock
for each. With many partitions it writes as a sticky partitioner does: the records of 5 ms go to one
partition, those of the next 5 ms to the next.

When it is asked to end, it prints as JSON the age of every tenth of the last records at the time at
which the broker acknowledged it. No reader can have records much earlier.
"""

from __future__ import annotations

import json
import signal
import struct
import sys
import time
from collections import deque
from typing import Any

MANY = 16  # partitions
LAST = 20_000  # how many ages are kept; older ones are of a broker that has just started and is slow


def main() -> None:
    from confluent_kafka import Producer

    broker, rate, partitions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    producer = Producer({"bootstrap.servers": broker})
    began, n, turn = time.monotonic(), 0, 0
    many = partitions > MANY
    ages: deque[int] = deque(maxlen=LAST)

    def acknowledged(error: object, message: Any) -> None:
        if error is None:
            ages.append(time.time_ns() - struct.unpack("<qq", message.value())[0])

    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: asked.append(number))
    while not asked:
        due = int((time.monotonic() - began) * rate)
        while n < due:
            to = (turn if many else n) % partitions
            try:
                record = struct.pack("<qq", time.time_ns(), n)
                if n % 10:
                    producer.produce("events", record, partition=to)
                else:
                    producer.produce("events", record, partition=to, on_delivery=acknowledged)
            except BufferError:  # the broker is not ready for that many partitions yet
                producer.poll(0.1)
                began = time.monotonic() - n / rate
                break
            n += 1
        turn += 1
        producer.poll(0)
        time.sleep(0.005 if many else 0.001)
    some = sorted(ages)
    print(json.dumps({f"p{p}_ms": some[len(some) * p // 100] / 1e6 for p in (50, 99)} if some else {}))


if __name__ == "__main__":
    main()
