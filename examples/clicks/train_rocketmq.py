"""The same job on RocketMQ's own Go client. `headrace demo --source rocketmq` compares
train.py with it.

Headrace delivers none of its records. RocketMQ has no Python client that is maintained,
so the official Go client reads: a push consumer, which commits offsets by itself every
5 s and writes the messages to a pipe (internal/proof/demo/pushconsumer). Settings are
the library's defaults.

    python train_rocketmq.py --consumer "headrace demo push-consumer" \\
        --name-server 127.0.0.1:9876 --topic clicks --broker broker-a --group trainers

If a process is killed, another learns again from what it learned after the last commit.
Messages that were in the pipe at a commit are lost. The model, the pace and the journal
are train.py's. The journal's checksums are over the bytes of the records.
"""

from __future__ import annotations

import argparse
import os
import queue
import shlex
import struct
import subprocess
import sys
import threading
import time
from typing import BinaryIO

from rival import Record, Rival, arguments

HEADER = struct.Struct("<IQI")  # queue, offset, length of the body
ASSIGNED = 2**32 - 1  # in the place of a length: not a message; the consumer was assigned queues


def read(pipe: BinaryIO, rival: Rival, partition: str, records: queue.Queue[Record | None]) -> None:
    """Reads the pipe until the consumer ends."""
    while header := pipe.read(HEADER.size):
        number, offset, length = HEADER.unpack(header)
        if length == ASSIGNED:
            rival.ready()
            continue
        records.put(Record(partition % number, offset, pipe.read(length)))
    records.put(None)


def take(records: queue.Queue[Record | None], rows: int) -> list[Record]:
    """Up to `rows` records: those that come within a second."""
    taken: list[Record] = []
    until = time.monotonic() + 1.0
    while len(taken) < rows:
        try:
            one = records.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            break
        if one is None:
            raise SystemExit("the consumer has ended")
        taken.append(one)
    return taken


def main() -> int:
    parser = argparse.ArgumentParser(description="Learn click-through rate from RocketMQ's push consumer.")
    parser.add_argument("--consumer", required=True, help="command of the push consumer")
    parser.add_argument("--name-server", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--broker", required=True, help="the topic's broker")
    parser.add_argument("--group", required=True)
    args = arguments(parser)

    rival = Rival(args)
    # It ends when this process does, even by a kill: then its standard input ends.
    consumer = subprocess.Popen(
        [*shlex.split(args.consumer), "--name-server", args.name_server, "--topic", args.topic, "--group", args.group,
         "--instance", f"trainer-{args.rank}-{os.getpid()}"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert consumer.stdout is not None
    records: queue.Queue[Record | None] = queue.Queue(2 * args.rows)  # when it is full, the consumer waits
    partition = f"{args.topic}/{args.broker}/%d"
    threading.Thread(target=read, args=(consumer.stdout, rival, partition, records), daemon=True).start()
    while True:
        asked = time.monotonic()
        rival.learn(asked, take(records, args.rows))


if __name__ == "__main__":
    sys.exit(main())
