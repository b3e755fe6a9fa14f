"""How old records are when a trainer gets them: headrace and the queue's own client, in turn.

    python -m bench.freshness.bench [--source kafka] [--partitions 2] [--rate 10000] [--rounds 3] [--seconds 10]

It starts one real broker (internal/proof/testbroker) with a topic of two or more partitions, and a
producer in its own process that writes at a fixed rate all the time: producer.py for Kafka, and
bench/fill, which also runs the broker, for Pulsar and RocketMQ. The queue's own Python client
reads beside headrace: confluent-kafka or pulsar-client. RocketMQ has no fast Python client, so
there headrace is alone. The readers (readers.py) take turns, each in a new process that begins at
the topic's end. The first seconds of each are left out. headrace is measured end to end:
`headrace up`, leases, acks, socket, a step for each batch. An age is the time from the producer's
clock in the record to the batch in Python. It includes the producer's own linger (5 ms).

At the end the producer is stopped, and the cost of an idle topic is measured: the cores that
`headrace up` and a waiting trainer use. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from bench import running
from bench.freshness.producer import MANY
from bench.freshness.readers import READY
from bench.running import say, spread

HERE = Path(__file__).resolve().parent
WORK = running.ROOT / "build" / "bench" / "freshness"
LOG = WORK / "up.log"
WARMUP = 3.0
IDLE = 10.0
SETTLE = 30.0  # a new topic's many partitions begin one after the other; a cold broker is slow meanwhile
Figures = dict[str, float]

DECODE = "decode: {format: binary, columns: [{name: at, dtype: int64}, {name: id, dtype: int64}]}\n"
RIVALS = {"kafka": "confluent", "pulsar": "pulsar", "rocketmq": ""}
REQUIREMENTS = {"kafka": HERE / "requirements.txt", "pulsar": HERE.parent / "pulsar" / "requirements.txt"}


def spec(source: str, address: str) -> str:
    if source == "kafka":
        where = f'brokers: ["{address}"]'
    elif source == "pulsar":
        service, admin = address.split()
        where = f'service: "{service}", admin: "{admin}"'
    else:
        where = f'name_servers: ["{address}"]'
    return f"name: events\n{source}: {{{where}, topic: events, start: latest, end: never}}\n{DECODE}"


@contextmanager
def produced(source: str, rate: int, partitions: int) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Starts a broker and a program that writes to its topic.

    Yields the broker's address and the processes whose end stops the writing.
    """
    if source == "kafka":
        with running.broker(WORK, "-topic", "events", "-partitions", str(partitions)) as address:
            args = [sys.executable, str(HERE / "producer.py"), address, str(rate), str(partitions)]
            producer = subprocess.Popen(args, stdout=subprocess.PIPE, text=True)
            try:
                yield address, producer
            finally:
                producer.kill()
                producer.wait()
        return
    args = [str(WORK / "fill"), "-broker", source, "-rate", str(rate), "-partitions", str(partitions)]
    with (WORK / "fill.log").open("w") as log:
        fill = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert fill.stdout
            address = fill.stdout.readline().strip()
            if not address:
                raise SystemExit(f"the broker did not start; see {log.name}")
            yield address, fill
        finally:
            fill.send_signal(signal.SIGINT)
            fill.wait(60)


def command(which: str, address: str, seconds: float, rate: int) -> list[str]:
    out = str(WORK / f"{which}.npy")
    return [sys.executable, str(HERE / "readers.py"), which, address, str(WARMUP), str(seconds), str(rate), out]


def read(which: str, address: str, seconds: float, rate: int, **env: str) -> Figures:
    run = subprocess.run(
        command(which, address, seconds, rate),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=READY + seconds + 60,
        env=running.environment(**env),
    )
    got: Figures = json.loads(run.stdout.splitlines()[-1])
    ages = np.load(WORK / f"{which}.npy")
    p50, p99, p999 = np.percentile(ages, [50, 99, 99.9])
    return {
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "p999_ms": float(p999),
        "max_ms": float(ages.max()),
        "rows": len(ages),
        "rows_per_batch": len(ages) / got["batches"],
        "trainer_cores": got["cpu_seconds"] / seconds,
        "ready_seconds": got["ready_seconds"],
    }


def headrace(source: str, address: str, seconds: float, rate: int) -> Figures:
    with running.up(LOG, spec(source, address)) as up:
        before = up.cpu()
        got = read("headrace", address, seconds, rate, HEADRACE_AGENT=up.socket)
        got["up_cores"] = (up.cpu() - before) / (got["ready_seconds"] + seconds)
        return got


def idle(source: str, address: str) -> Figures:
    """The cost of waiting: nothing is produced."""
    with running.up(LOG, spec(source, address)) as up:
        trainer = subprocess.Popen(
            command("headrace", address, 1000, 0),
            env=running.environment(HEADRACE_AGENT=up.socket),
            stdout=subprocess.DEVNULL,
        )
        try:
            time.sleep(3)  # imports, the first leases
            before = up.cpu(), running.cpu_of(trainer.pid)
            time.sleep(IDLE)
            after = up.cpu(), running.cpu_of(trainer.pid)
            return {"idle_up_cores": (after[0] - before[0]) / IDLE, "idle_trainer_cores": (after[1] - before[1]) / IDLE}
        finally:
            trainer.kill()
            trainer.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", choices=list(RIVALS), default="kafka")
    parser.add_argument("--partitions", type=int, default=2, help="of the topic, all read by one agent")
    parser.add_argument("--rate", type=int, default=10_000, help="records/s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="measured of each reader and round")
    args = parser.parse_args()
    go = "./internal/proof/testbroker/broker-kafka" if args.source == "kafka" else "./bench/fill"
    running.prepare(WORK, REQUIREMENTS.get(args.source, HERE / "requirements.txt"), go)
    rival = RIVALS[args.source]
    rounds: dict[str, list[Figures]] = {"headrace": []}
    if rival:
        rounds[rival] = []
    result: dict[str, object] = dict(vars(args))
    result["load"] = os.getloadavg()[0]  # of the machine before it began
    with produced(args.source, args.rate, args.partitions) as (address, producer):
        if args.partitions > MANY:
            time.sleep(SETTLE)
        for i in range(args.rounds):
            rounds["headrace"].append(headrace(args.source, address, args.seconds, args.rate))
            if rival:
                rounds[rival].append(read(rival, address, args.seconds, args.rate))
            last = ", ".join(
                f"{name} p50 {r[-1]['p50_ms']:.1f} p99 {r[-1]['p99_ms']:.1f} ms" for name, r in rounds.items()
            )
            load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
            say(f"round {i + 1} of {args.rounds}, age of records: {last} ({load})")
            short = min(r[-1]["rows"] for r in rounds.values()) / args.seconds / args.rate
            if short < 0.9:
                say(f"  one reader saw only {100 * short:.0f} % of the rate: the machine is too busy for it")
        for name, all_rounds in rounds.items():
            for figure in all_rounds[0]:
                if figure != "rows":
                    result[f"{name}_{figure}"] = spread([r[figure] for r in all_rounds])
        if args.source == "kafka":  # the other brokers end with the program that writes
            producer.terminate()
            acknowledged: Figures = json.loads(producer.communicate(timeout=60)[0])
            result.update({f"acknowledged_{k}": round(v, 1) for k, v in acknowledged.items()})
            result.update({k: round(v, 4) for k, v in idle(args.source, address).items()})
    print(json.dumps(result))


if __name__ == "__main__":
    main()
