"""Records from their push until a trainer has them: headrace's landing and a real Kafka, in turn.

    python -m bench.landing.bench [--records 200000] [--rate 5000] [--rounds 3]

One producer and one reader, both in Python, each in its own process. A record has 200 bytes: its
producer's clock, its number, and 46 float32. Landing: `headrace.Pusher`, one transaction at a time, and
a trainer with a step for each batch, through `headrace up`. Kafka: confluent-kafka with acks=all and
a flush where landing commits, and its consumer with one np.frombuffer for each of its batches. Both
use the same disk. Landing fsyncs each chunk and each commit before it answers; Kafka with its default
settings does not fsync.

Each round has two figures, first of landing, then of Kafka: how long all records take from the first
push to the last batch (transactions of 10,000), and how old a record is in the reader at a fixed rate
(a transaction every 100 ms). CPU is that of all processes: producer, reader, and the broker with its
Java, or `headrace up`. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from bench import running
from bench.running import say, spread

HERE = Path(__file__).resolve().parent
WORK = running.ROOT / "build" / "bench" / "landing"
PARTITIONS = 2
SPEC = f"""\
name: events
landing: {{partitions: {PARTITIONS}, retain: 0s}}
decode:
  format: binary
  columns: [{{name: at, dtype: int64}}, {{name: id, dtype: int64}}, {{name: x, dtype: float32, shape: [46]}}]
"""
WAYS = ("landing", "kafka")
Figures = dict[str, float]


def tree(pid: int) -> list[int]:
    """A process and its children, their children, and so on."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(stat.read_text().rsplit(")", 1)[1].split()[1])
        except OSError:
            continue  # it has ended
        children.setdefault(parent, []).append(int(stat.parent.name))
    found = [pid]
    for p in found:
        found += children.get(p, [])
    return found


def cpu_of_tree(pid: int) -> float:
    return sum(running.cpu_of(p) for p in tree(pid))


@contextmanager
def kafka() -> Iterator[tuple[str, int]]:
    """A broker: its address, and its process id."""
    with (WORK / "broker.log").open("w") as log:
        args = [str(WORK / "broker-kafka"), "-topic", "events", "-partitions", str(PARTITIONS)]
        process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout
            address = process.stdout.readline().strip()
            if not address:
                raise SystemExit(f"the Kafka broker did not start; see {log.name}")
            yield address, process.pid
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def run(which: str, where: str, records: int, rate: int, server: int, **env: str) -> Figures:
    """One producer and one reader. where: the address of the broker, or the state folder."""
    ages = WORK / f"{which}.npy"
    program = [sys.executable, str(HERE / "sides.py")]
    pipe, environment = subprocess.PIPE, running.environment(**env)
    args = [*program, "read", which, where, str(records), str(ages)]
    with subprocess.Popen(args, env=environment, stdout=pipe, text=True) as reader:
        try:
            assert reader.stdout
            if reader.stdout.readline() != "ready\n":
                raise SystemExit(f"the reader of {which} did not begin")
            before = cpu_of_tree(server)
            args = [*program, "push", which, where, str(records), str(rate)]
            pushed = json.loads(subprocess.run(args, env=environment, stdout=pipe, text=True, check=True).stdout)
            got = json.loads(reader.communicate(timeout=600)[0])
        finally:
            reader.kill()
    server_cpu = cpu_of_tree(server) - before
    p50, p99 = np.percentile(np.load(ages), [50, 99])
    return {
        "records_per_s": records / (got["last"] - pushed["first"]),
        "pushed_per_s": records / (pushed["last"] - pushed["first"]),
        "p50_ms": float(p50),
        "p99_ms": float(p99),
        "us_per_record": 1e6 * (server_cpu + pushed["cpu"] + got["cpu"]) / records,
        "producer_us_per_record": 1e6 * pushed["cpu"] / records,
        "reader_us_per_record": 1e6 * got["cpu"] / records,
        "server_us_per_record": 1e6 * server_cpu / records,
    }


def landing(records: int, rate: int) -> Figures:
    with running.up(WORK / "up.log", SPEC, more=("--session-ttl", "60s")) as up:
        state = str(up.folder / "state")
        return run("landing", state, records, rate, up.pid, HEADRACE_AGENT=up.socket, HEADRACE_STATE=state)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=200_000, help="records of the first figure")
    parser.add_argument("--rate", type=int, default=5000, help="records per second of the second figure")
    parser.add_argument("--seconds", type=float, default=10, help="seconds of the second figure")
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    running.prepare(WORK, HERE / "requirements.txt", "./internal/proof/testbroker/broker-kafka")
    result: dict[str, object] = dict(vars(args))
    result["load"] = os.getloadavg()[0]  # of the machine before it began
    figures: dict[str, list[dict[str, Figures]]] = {"fast": [], "fresh": []}
    with kafka() as (address, pid):
        run("kafka", address, args.records, 0, pid)  # a warm-up: Java is slow until it has compiled itself
        for i in range(args.rounds):
            for kind, records, rate in (("fast", args.records, 0), ("fresh", int(args.rate * args.seconds), args.rate)):
                got = {"landing": landing(records, rate), "kafka": run("kafka", address, records, rate, pid)}
                figures[kind].append(got)
                say(f"round {i + 1} of {args.rounds}, {kind}: " + ", ".join(line(w, got[w], rate) for w in WAYS))
    for kind, names in (("fast", ("records_per_s", "pushed_per_s")), ("fresh", ("p50_ms", "p99_ms"))):
        for name in (*names, "us_per_record", "producer_us_per_record", "reader_us_per_record", "server_us_per_record"):
            for way in WAYS:
                result[f"{kind}_{way}_{name}"] = spread([r[way][name] for r in figures[kind]])
            result[f"{kind}_{name}_of_kafka"] = spread([r["landing"][name] / r["kafka"][name] for r in figures[kind]])
    print(json.dumps(result))


def line(way: str, f: Figures, rate: int) -> str:
    if rate:
        return f"{way} p50 {f['p50_ms']:.0f} p99 {f['p99_ms']:.0f} ms, {f['us_per_record']:.1f} us CPU a record"
    return f"{way} {f['records_per_s']:,.0f} records/s, {f['us_per_record']:.1f} us CPU a record"


if __name__ == "__main__":
    main()
