"""RocketMQ to numpy batches: headrace and two ways of the official Go client, in one run.

    python -m bench.rocketmq.bench [--records 500000] [--rounds 3] [--wide]

bench/queues.py says how it measures. The topics are written in batches of 1,000 records. The broker has
its default limit of 32 messages for one answer, or 1,024 with --wide.
"""

from __future__ import annotations

from pathlib import Path

from bench import queues


def source(topic: str, name_server: str) -> str:
    return f'{{name_servers: ["{name_server}"], topic: {topic}}}'


if __name__ == "__main__":
    parser = queues.arguments(__doc__.splitlines()[0])
    parser.add_argument("--wide", action="store_true", help="a broker that gives 1,024 messages in one answer")
    args = parser.parse_args()
    queue = queues.Queue("rocketmq", Path(__file__).resolve().parent, source)
    queues.main(queue, args, *(["-wide"] if args.wide else []))
