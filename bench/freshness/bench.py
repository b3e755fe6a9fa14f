"""How old records are when a trainer has them: headrace and confluent-kafka, in turn.

    python -m bench.freshness.bench [--rate 10000] [--rounds 3] [--seconds 10]

One real broker, started here (internal/proof/testbroker), a topic of two partitions, and a
producer in a process of its own that writes at a fixed rate all the time. The two
readers (readers.py) take turns, each in a fresh process that begins at the topic's
end; the first seconds of each are left out. headrace is end to end: `headrace up`,
leases, acks, socket, a step per batch. An age is from the producer's clock in the
record to the batch in Python, and holds the producer's own linger (5 ms) as well.

Last, the producer is ended, and what an idle tail costs is measured: cores of
`headrace up` and of a trainer that waits. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from bench import running
from bench.running import say, spread

HERE = Path(__file__).resolve().parent
WORK = running.ROOT / "build" / "bench" / "freshness"
LOG = WORK / "up.log"
PARTITIONS = 2
WARMUP = 3.0
IDLE = 10.0
Figures = dict[str, float]

SPEC = """name: events
kafka: {{brokers: ["{broker}"], topic: events, start: latest, end: never}}
decode: {{format: binary, columns: [{{name: at, dtype: int64}}, {{name: id, dtype: int64}}]}}
"""


def command(which: str, address: str, seconds: float) -> list[str]:
    out = str(WORK / f"{which}.npy")
    return [sys.executable, str(HERE / "readers.py"), which, address, str(WARMUP), str(seconds), out]


def read(which: str, address: str, seconds: float, **env: str) -> Figures:
    run = subprocess.run(
        command(which, address, seconds),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=WARMUP + seconds + 60,
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
    }


def headrace(address: str, seconds: float) -> Figures:
    with running.up(LOG, SPEC.format(broker=address)) as up:
        before = up.cpu()
        got = read("headrace", address, seconds, HEADRACE_AGENT=up.socket)
        got["up_cores"] = (up.cpu() - before) / (WARMUP + seconds)
        return got


def idle(address: str) -> Figures:
    """Nothing is produced: what waiting costs."""
    with running.up(LOG, SPEC.format(broker=address)) as up:
        trainer = subprocess.Popen(
            command("headrace", address, 1000),
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
    parser.add_argument("--rate", type=int, default=10_000, help="records/s")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10, help="measured of each reader and round")
    args = parser.parse_args()
    running.prepare(WORK, HERE / "requirements.txt", "./internal/proof/testbroker/broker-kafka")
    rounds: dict[str, list[Figures]] = {"headrace": [], "confluent": []}
    with running.broker(WORK, "-topic", "events", "-partitions", str(PARTITIONS)) as address:
        produce = [sys.executable, str(HERE / "producer.py"), address, str(args.rate), str(PARTITIONS)]
        producer = subprocess.Popen(produce)
        try:
            for i in range(args.rounds):
                rounds["headrace"].append(headrace(address, args.seconds))
                rounds["confluent"].append(read("confluent", address, args.seconds))
                last = ", ".join(
                    f"{name} p50 {r[-1]['p50_ms']:.1f} p99 {r[-1]['p99_ms']:.1f} ms" for name, r in rounds.items()
                )
                load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
                say(f"round {i + 1} of {args.rounds}, age of records: {last} ({load})")
                short = min(r[-1]["rows"] for r in rounds.values()) / args.seconds / args.rate
                if short < 0.9:
                    say(f"  one reader saw only {100 * short:.0f} % of the rate: the machine is too busy for it")
        finally:
            producer.kill()
            producer.wait()
        result: dict[str, object] = {"rate": args.rate, "seconds": args.seconds, "rounds": args.rounds}
        for name, all_rounds in rounds.items():
            for figure in all_rounds[0]:
                if figure != "rows":
                    result[f"{name}_{figure}"] = spread([r[figure] for r in all_rounds])
        result.update({k: round(v, 4) for k, v in idle(address).items()})
    print(json.dumps(result))


if __name__ == "__main__":
    main()
