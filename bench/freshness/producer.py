"""Produces records at a fixed rate until it is killed: producer.py BROKER RATE PARTITIONS

A record is its producer's wall clock in ns and its number, 16 bytes. librdkafka with
its default settings (linger.ms 5) writes them. Each millisecond those that are due
are made, with one reading of the clock each. Into many partitions it writes as a sticky
partitioner does: those that are due each 5 ms go to one partition, then to the next.
"""

from __future__ import annotations

import struct
import sys
import time

MANY = 16  # partitions


def main() -> None:
    from confluent_kafka import Producer

    broker, rate, partitions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    producer = Producer({"bootstrap.servers": broker})
    began, n, turn = time.monotonic(), 0, 0
    many = partitions > MANY
    while True:
        due = int((time.monotonic() - began) * rate)
        while n < due:
            to = (turn if many else n) % partitions
            try:
                producer.produce("events", struct.pack("<qq", time.time_ns(), n), partition=to)
            except BufferError:  # the broker is not ready for that many partitions yet
                producer.poll(0.1)
                began = time.monotonic() - n / rate
                break
            n += 1
        turn += 1
        producer.poll(0)
        time.sleep(0.005 if many else 0.001)


if __name__ == "__main__":
    main()
