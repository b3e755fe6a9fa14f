"""The readers that bench.py measures: one per process, RocketMQ to numpy batches.

    python -m bench.rocketmq.readers WHICH FORM NAMESERVER RECORDS [check]

They use the decoders of bench/kafka/readers.py, for the topics `floats` and `tsv`. RocketMQ has no fast
Python client, so headrace is compared with the official Go client and a pipe into Python
(internal/proof/demo/pushconsumer), which commits offsets by itself.

headrace   the product: a running agent, `stream.step()` after each batch of 1,024. Its
           time ends when all steps are durable.
ordinary   a push consumer with the library's defaults, one message after the other
           through the pipe; np.frombuffer and np.stack, or split, for each record.
tuned      as many messages per pull and per call as the library allows, joined in
           Go. A broker gives 32 messages in one answer by default, and 32 lines cost
           pyarrow as much as some thousand. So blocks are gathered up to the batch of
           bench/kafka/readers.py: np.frombuffer or pyarrow's CSV reader for each.

The clock of the Go client starts when it has its queues: it joins a group first, which takes seconds.
The clock of headrace starts before it opens its dataset. `child_cpu_seconds` is that of the Go
process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from struct import Struct
from typing import Any

from bench import timed
from bench.kafka import readers as kafka

HEADER, ASSIGNED = Struct("<IQI"), 2**32 - 1


class Message:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def value(self) -> bytes:
        return self.body


class Pipe(kafka.Consumer):
    """A push consumer that has got its queues."""

    def __init__(self, form: str, broker: str, settings: dict[str, Any], size: int) -> None:
        more = ["--tuned", "--after", "" if form == "floats" else "\n"] if settings else []
        group = f"bench-{form}-{time.monotonic_ns()}"
        args = [os.environ["HEADRACE_BIN"], "demo", "push-consumer", "--name-server", broker, "--topic", form]
        args += ["--group", group, "--instance", f"bench-{os.getpid()}", *more]
        self.child = subprocess.Popen(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=1 << 20)
        assert self.child.stdout
        self.pipe, self.form, self.size, self.joined = self.child.stdout, form, size, bool(settings)
        if self.one() is not None:
            raise SystemExit("the consumer has messages before it has queues")

    def one(self) -> bytes | None:
        _, _, length = HEADER.unpack(self.pipe.read(HEADER.size))
        return None if length == ASSIGNED else self.pipe.read(length)

    def messages(self) -> Iterator[list[Any]]:
        left = int(sys.argv[4])  # no more come after this many
        while left > 0:
            messages, rows = [], 0
            while rows < min(self.size, left):
                if (body := self.one()) is not None:
                    messages.append(Message(body))
                    rows += self.rows(body)
            left -= rows
            yield messages

    def rows(self, body: bytes) -> int:
        if not self.joined:
            return 1
        return body.count(b"\n") + 1 if self.form == "tsv" else len(body) // (4 * kafka.WIDTH)

    def child_cpu(self) -> float:
        fields = Path(f"/proc/{self.child.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        self.child.kill()
        self.child.wait()


class Ordinary(kafka.Ordinary, Pipe):
    """Batches of 1,000 records, as with Kafka."""


class Tuned(kafka.Tuned, Pipe):
    """Blocks of many messages, several at a time."""


if __name__ == "__main__":
    timed.main({"headrace": kafka.Headrace, "ordinary": Ordinary, "tuned": Tuned})
