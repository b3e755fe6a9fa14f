"""Produces records at a fixed rate until it is killed: producer.py BROKER RATE PARTITIONS

A record is its producer's wall clock in ns and its number, 16 bytes. librdkafka with
its default settings (linger.ms 5) writes them. Each millisecond those that are due
are made, with one reading of the clock each.
"""

from __future__ import annotations

import struct
import sys
import time

from confluent_kafka import Producer


def main() -> None:
    broker, rate, partitions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    producer = Producer({"bootstrap.servers": broker})
    began, n = time.monotonic(), 0
    while True:
        due = int((time.monotonic() - began) * rate)
        while n < due:
            producer.produce("events", struct.pack("<qq", time.time_ns(), n), partition=n % partitions)
            n += 1
        producer.poll(0)
        time.sleep(0.001)


if __name__ == "__main__":
    main()
