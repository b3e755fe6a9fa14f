"""A real Kafka with records, for tests that need a topic."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]

PRODUCE = """
import sys
from confluent_kafka import Producer

def told(error, message):
    assert error is None, error

producer = Producer({"bootstrap.servers": sys.argv[1], "log_level": 3})
for i, line in enumerate(sys.stdin.buffer):
    producer.produce("clicks", line.rstrip(b"\\n"), partition=i % 4, on_delivery=told)
    producer.poll(0)
producer.flush()
"""


def produce(address: str, lines: str) -> None:
    """Writes the lines to the topic, each to the next of its partitions."""
    python = ROOT / ".venv" / "bin" / "python"  # it has a Kafka client
    subprocess.run([python, "-c", PRODUCE, address], input=lines.encode(), check=True, timeout=300)


@contextlib.contextmanager
def kafka(folder: Path, lines: str) -> Iterator[str]:
    """Starts a real Kafka, with the lines in its topic `clicks`."""
    program = folder / "broker-kafka"
    subprocess.run(["go", "build", "-o", program, "./internal/proof/testbroker/broker-kafka"], check=True, cwd=ROOT)
    command = [program, "-topic", "clicks", "-partitions", "4"]
    with (
        (folder / "broker.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process,
    ):
        try:
            assert process.stdout
            address = process.stdout.readline().strip()
            assert address, (folder / "broker.log").read_text()
            produce(address, lines)
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(300)
