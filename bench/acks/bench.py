"""The cost of acking: a trainer that steps every batch against one that reads
with track=False, turn and turn about in one run on the same file.

The loop takes 1,024-row batches of click-log columns (label, 13 floats, 26
hashed ids) and does nothing else, so what an ack costs stands against the
shortest step there can be. A pair of readings gives one ratio; `cost` is the
median over all pairs; its range and the middle half are printed with it, since
one pair alone may be off by 10 % where other work runs. `cpu_cost` is the same
for the CPU time of trainer, agent and master together, which other work on the
machine disturbs less. It can come out below 0: with track=False the agent itself
acks every frame as it leaves, and steps, gathered for 10 ms, make fewer messages
and commits than that. `trainer_cpu_us_per_batch` is what the trainer's own
process pays for a step. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import headrace

ROOT = Path(__file__).resolve().parents[2]
BATCH = 1024

SPEC = """
name: {name}
files: {{root: {root}, paths: [clicks.tsv]}}
passes: {passes}
decode:
  format: tsv
  columns:
    - {{name: label, path: "0", dtype: float32}}
    - {{name: dense, paths: ["1..13"], dtype: float32, default: "-1"}}
    - {{name: cat, paths: ["14..39"], dtype: int64, hash: {{buckets: 32768}}}}
"""


def say(text: str) -> None:
    print(text, flush=True)


def write(path: Path, rows: int) -> None:
    """Lines as long as the click log's, from a fixed seed."""
    rng = random.Random(3)
    block = []
    for _ in range(4096):
        fields = [str(rng.randrange(2))]
        fields += [str(rng.randrange(1000)) if rng.random() < 0.9 else "" for _ in range(13)]
        fields += [f"{rng.randrange(1 << 16):08x}" for _ in range(26)]
        block.append("\t".join(fields))
    text = "\n".join(block) + "\n"
    with path.open("w") as file:
        for _ in range(-(-rows // len(block))):
            file.write(text)


class Up:
    """`headrace up` in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.binary = os.environ.get("HEADRACE_BIN", str(ROOT / "build" / "headrace"))
        self.folder = folder
        self.socket = str(folder / "agent.sock")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        self.env["HEADRACE_STATE"] = str(folder / "state")
        self.log = (folder / "up.log").open("wb")
        self.process = subprocess.Popen(
            [
                self.binary, "up", "--socket", self.socket, "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0",
                "--allow-root", str(folder), "--log-level", "warn",
            ],
            env=self.env, stdout=self.log, stderr=self.log,
        )  # fmt: skip
        deadline = time.monotonic() + 20
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"`headrace up` did not start: {(folder / 'up.log').read_text()}")
            time.sleep(0.02)

    def apply(self, name: str, passes: int) -> None:
        spec = self.folder / f"{name}.yaml"
        spec.write_text(SPEC.format(name=name, root=self.folder, passes=passes))
        apply = [self.binary, "dataset", "apply", "-f", str(spec)]
        subprocess.run(apply, env=self.env, check=True, capture_output=True)

    def cpu(self) -> float:
        """CPU seconds of master and agent so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)
        self.log.close()


def read(name: str, track: bool) -> tuple[float, float, int]:
    """Seconds from the first batch to the end of data, this process's CPU seconds, rows."""
    rows = 0
    with headrace.dataset(name).batches(BATCH, track=track) as stream:
        first = next(stream)
        rows += len(first)
        began, cpu = time.perf_counter(), time.process_time()
        if track:
            stream.step()
        for b in stream:
            b["label"], b["dense"], b["cat"]
            rows += len(b)
            if track:
                stream.step()
        return time.perf_counter() - began, time.process_time() - cpu, rows


def middle_half(values: list[float]) -> list[float]:
    """First and third quartile."""
    if len(values) < 2:
        return [round(v, 4) for v in values * 2]
    quarters = statistics.quantiles(values, n=4, method="inclusive")
    return [round(quarters[0], 4), round(quarters[2], 4)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=400_000, help="rows of the file")
    parser.add_argument("--passes", type=int, default=5, help="passes over the file in one reading")
    parser.add_argument("--pairs", type=int, default=31, help="pairs of readings")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="hr-acks-", dir="/tmp") as folder:
        path = Path(folder)
        say(f"writing {args.rows:,} rows")
        write(path / "clicks.tsv", args.rows)
        up = Up(path)
        try:
            headrace.init(agent=up.socket)
            ratios: list[float] = []
            cpu: list[float] = []
            cpu_ratios: list[float] = []
            rates: dict[bool, list[float]] = {True: [], False: []}
            for pair in range(args.pairs + 1):
                took: dict[bool, tuple[float, float, int]] = {}
                served: dict[bool, float] = {}
                for track in (True, False) if pair % 2 else (False, True):
                    name = f"p{pair}{'t' if track else 'u'}"
                    up.apply(name, args.passes)
                    before = up.cpu()
                    took[track] = read(name, track)
                    served[track] = up.cpu() - before + took[track][1]
                (acked, acked_cpu, rows), (plain, plain_cpu, _) = took[True], took[False]
                if pair == 0:
                    continue  # the first pair warms the page cache
                ratios.append(acked / plain - 1)
                cpu_ratios.append(served[True] / served[False] - 1)
                cpu.append((acked_cpu - plain_cpu) / (rows / BATCH) * 1e6)
                rates[True].append(rows / acked)
                rates[False].append(rows / plain)
                say(
                    f"pair {pair}/{args.pairs}: acked {rows / acked / 1e6:.2f} M rows/s, "
                    f"track=False {rows / plain / 1e6:.2f} M rows/s, cost {ratios[-1]:+.1%}, "
                    f"in CPU {cpu_ratios[-1]:+.1%}"
                )
        finally:
            headrace.shutdown()
            up.stop()
    result = {
        "bench": "acks",
        "cost": round(statistics.median(ratios), 4),
        "cost_range": [round(min(ratios), 4), round(max(ratios), 4)],
        "cost_middle_half": middle_half(ratios),
        "cost_goal": 0.02,
        "cpu_cost": round(statistics.median(cpu_ratios), 4),
        "cpu_cost_range": [round(min(cpu_ratios), 4), round(max(cpu_ratios), 4)],
        "cpu_cost_middle_half": middle_half(cpu_ratios),
        "trainer_cpu_us_per_batch": round(statistics.median(cpu), 2),
        "rows_per_second_acked": round(statistics.median(rates[True])),
        "rows_per_second_untracked": round(statistics.median(rates[False])),
        "batch_rows": BATCH,
        "pairs": args.pairs,
    }
    say(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
