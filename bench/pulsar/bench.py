"""Pulsar to numpy batches: headrace and two ways of the official Python client, in one run.

    python -m bench.pulsar.bench [--records 500000] [--rounds 3]

bench/queues.py says how it measures. The official Go producer writes the topics with its defaults:
batches of up to 128 KiB, not compressed.
"""

from __future__ import annotations

from pathlib import Path

from bench import queues


def source(topic: str, broker: str) -> str:
    service, admin = broker.split()
    return f'{{service: "{service}", admin: "{admin}", topic: {topic}}}'


if __name__ == "__main__":
    args = queues.arguments(__doc__.splitlines()[0]).parse_args()
    queues.main(queues.Queue("pulsar", Path(__file__).resolve().parent, source), args)
