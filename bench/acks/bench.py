"""What acks and exact checkpoints cost: one trainer steps every batch, another says nothing. They take
turns in one run on the same file.

    python -m bench.acks.bench [--seconds 2] [--pairs 31] [--save-every 0]

Two streams read endless passes over one file, side by side in one process: batches of 1,024 rows of
click-log columns (label, 13 floats, 26 hashed ids). The loop does nothing else, so the cost of an
ack is compared with the shortest possible step. Before each window both step for a second, so that
both have the leases of their pace. A window has the same number of rows for both, and takes about
--seconds. In its window `exact` steps each batch. With --save-every it also saves and binds
checkpoints (1 MiB of weights, 3 are kept), spread evenly over the window. `silent` takes the same
frames of the same leases and says nothing: in its window no ack is made, sent or written. Its batches
are stepped after the window, and the next window begins when that is durable. (track=False would
not do: with it the agent acks each frame by itself.)

A pair of windows gives one ratio of times, and one ratio of the CPU time of trainer, agent and master
together. Other work on the machine disturbs the second less. For each it prints the median over
the pairs, the interval that holds the median with 95 % (bootstrap), and the range. If the interval
is wider than the goal, this run cannot tell. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import headrace
import numpy as np
from bench import clicks, running
from bench.running import interval, say
from headrace import Checkpointer, Saved, Stream

WORK = running.ROOT / "build" / "bench" / "acks"
HERE = Path(__file__).resolve().parent
BATCH = 1024
WARM_SECONDS = 1.0
GOAL = 0.02


def spec(name: str) -> str:
    head = f"name: {name}\nfiles: {{root: {json.dumps(str(WORK))}, paths: [clicks.tsv]}}\npasses: 1000000\n"
    return head + clicks.decode("tsv", buckets=32768)


class Window(NamedTuple):
    seconds: float
    cpu: float  # of trainer, agent and master
    trainer_cpu: float
    batches: int
    unbound: int  # checkpoints that were not bound at the end of the window


class Bench:
    """The two streams, and what is needed to measure them."""

    def __init__(self, up: running.Up, checkpoints: Checkpointer | None) -> None:
        self.up = up
        self.checkpoints = checkpoints
        self.streams = {name: headrace.dataset(name).batches(BATCH) for name in ("exact", "silent")}
        self.weights = np.zeros(1 << 17)

    def window(self, name: str, batches: int, saves: int) -> Window:
        """Reads so many batches after the warm-up, and treats them as `name` says."""
        stream = self.streams[name]
        warm = time.perf_counter() + WARM_SECONDS
        while time.perf_counter() < warm:
            self.take(stream)
            stream.step()
        served, began, cpu = self.up.cpu(), time.perf_counter(), time.process_time()
        due = [round((i + 0.5) * batches / saves) for i in range(saves)] if name == "exact" else []
        saved: list[Saved] = []
        for i in range(batches):
            self.take(stream)
            if name == "exact":
                step = stream.step()
                if due and i >= due[0]:
                    del due[0]
                    saved.append(self.save(step))
        seconds, trainer = time.perf_counter() - began, time.process_time() - cpu
        cpu = self.up.cpu() - served + trainer
        unbound = sum(not s.done for s in saved)
        self.settle(stream, saved)
        return Window(seconds, cpu, trainer, batches, unbound)

    def take(self, stream: Stream) -> None:
        b = next(stream)
        b["label"], b["dense"], b["cat"]

    def save(self, step: int) -> Saved:
        assert self.checkpoints is not None
        return self.checkpoints.save(step, {"weights": self.weights})

    def settle(self, stream: Stream, saved: list[Saved]) -> None:
        """Waits for the rest of this window's work, so that none of it falls into the next one."""
        for s in saved:
            s.wait(60)
        if stream.unstepped:
            stream.step(batches=stream.unstepped)
        deadline = time.monotonic() + 60
        while stream.stats().durable < stream.stats().batches:
            if time.monotonic() > deadline:
                raise SystemExit("the steps of a window are not durable after a minute")
            time.sleep(0.02)


def figures(name: str, ratios: list[float]) -> dict[str, object]:
    return {
        name: round(statistics.median(ratios), 4),
        f"{name}_interval": interval(ratios),
        f"{name}_range": [round(min(ratios), 4), round(max(ratios), 4)],
    }


def verdict(ratios: list[float]) -> str:
    low, high = interval(ratios)
    if high <= GOAL:
        return "within the goal"
    return "over the goal" if low > GOAL else "this run cannot tell whether it is within the goal"


def measure(bench: Bench, args: argparse.Namespace) -> dict[str, object]:
    saves = max(1, round(args.seconds / args.save_every)) if args.save_every else 0
    # The first pair warms the page cache, and decides how many batches a window has.
    batches = 2000
    for name in ("silent", "exact"):
        first = bench.window(name, batches, min(saves, 1))
    batches = max(100, round(first.batches / first.seconds * args.seconds))
    say(f"{args.pairs} pairs of windows of {batches * BATCH:,} rows")

    pairs: list[dict[str, Window]] = []
    for number in range(1, args.pairs + 1):
        order = ("exact", "silent") if number % 2 else ("silent", "exact")
        pair = {name: bench.window(name, batches, saves) for name in order}
        pairs.append(pair)
        exact, silent = pair["exact"], pair["silent"]
        rate = batches * BATCH / 1e6
        say(
            f"pair {number}/{args.pairs}: exact {rate / exact.seconds:.2f} M rows/s, silent "
            f"{rate / silent.seconds:.2f}, cost {exact.seconds / silent.seconds - 1:+.1%}, in CPU "
            f"{exact.cpu / silent.cpu - 1:+.1%} (load {os.getloadavg()[0]:.1f})"
        )
    time_cost = [p["exact"].seconds / p["silent"].seconds - 1 for p in pairs]
    cpu_cost = [p["exact"].cpu / p["silent"].cpu - 1 for p in pairs]
    say(f"time: {verdict(time_cost)}; CPU: {verdict(cpu_cost)}")
    all_us = [(p["exact"].cpu - p["silent"].cpu) / batches * 1e6 for p in pairs]
    trainer_us = [(p["exact"].trainer_cpu - p["silent"].trainer_cpu) / batches * 1e6 for p in pairs]
    result: dict[str, object] = {
        **figures("cost", time_cost),
        **figures("cpu_cost", cpu_cost),
        "cpu_us_per_batch": round(statistics.median(all_us), 2),
        "trainer_cpu_us_per_batch": round(statistics.median(trainer_us), 2),
    }
    for name in ("exact", "silent"):
        rate = statistics.median(batches * BATCH / p[name].seconds for p in pairs)
        result[f"{name}_rows_per_second"] = round(rate)
    result.update(pairs=args.pairs, window_rows=batches * BATCH, batch_rows=BATCH)
    if saves:
        result["checkpoints"] = saves * args.pairs
        result["checkpoints_unbound_at_window_end"] = sum(p["exact"].unbound for p in pairs)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=400_000, help="rows of the file")
    parser.add_argument("--seconds", type=float, default=2, help="of a window")
    parser.add_argument("--pairs", type=int, default=31, help="pairs of windows")
    parser.add_argument("--save-every", type=float, default=0, help="seconds between two checkpoints; 0: none")
    args = parser.parse_args()
    running.prepare(WORK, HERE.parent / "decode" / "requirements.txt", "./bench/decode")
    generate = [str(WORK / "decode"), "generate", "-format", "tsv", "-records", str(args.rows)]
    subprocess.run([*generate, str(WORK / "clicks.tsv")], check=True)
    with running.up(WORK / "up.log", spec("exact"), spec("silent"), more=("--model", "replicated")) as up:
        headrace.init(agent=up.socket)
        try:
            folder = up.folder / "checkpoints"
            result = measure(Bench(up, Checkpointer(folder) if args.save_every else None), args)
        finally:
            headrace.shutdown()
    say(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
