"""The cost of rounds: four ranks that train one model take the same steps, with rounds and without, in
turn. Prints progress, and one JSON object on the last line.

    make bench-rounds

A barrier between the processes takes the place of the collective. A step is next(), --work ms of work
(a sleep, as on a GPU), the barrier, and stream.step(). There are always rows for all ranks, and the run
stops in the middle of a pass, so that the group without rounds does not hang.

A rank waits in a collective *because of data* while it is in the barrier and another rank
is in next(). `scarce` is an input that grows more slowly than the ranks could train it.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from bench import running
from bench.running import interval, say, spread

RANKS = 4
WARM = 20  # steps before the clock starts
Times = list[tuple[float, float, float, float]]  # of each step: next() called, returned, barrier entered, left
SPEC = """
name: rows
files: {{root: {root}, paths: ["*.csv"]{live}}}
decode: {{format: csv, columns: [{columns}]}}
"""
COLUMNS = ", ".join(f"{{name: c{i}, path: {i}, dtype: float32}}" for i in range(8))


def train(rank: int, cfg: dict[str, Any], rounds: bool, barrier: Any, results: Any) -> None:
    """The program of one rank."""
    os.environ.update(HEADRACE_AGENT=cfg["socket"], OPENBLAS_NUM_THREADS="1")
    import headrace

    trainer = headrace.init(rank=rank, world_size=RANKS)
    stream = headrace.dataset("rows").batches(cfg["rows"], rounds=rounds, max_wait=0.5 if rounds else None)
    times: Times = []
    cpu = 0.0
    for step in range(1, cfg["steps"] + 1):
        if step == WARM:
            cpu = time.process_time()
        called = time.monotonic()
        next(stream)
        came = time.monotonic()
        time.sleep(cfg["work"])
        entered = time.monotonic()
        barrier.wait(120)
        times.append((called, came, entered, time.monotonic()))
        stream.step(step)
    cpu = time.process_time() - cpu
    barrier.wait(120)
    results.put((trainer.rank, times, cpu))
    stream.close()
    headrace.shutdown()


def run(cfg: dict[str, Any], rounds: bool, spec: str, log: Path) -> dict[str, float]:
    """Runs one group from its start to its last step, with its own agent and master."""
    with running.up(log, spec, more=("--model", "replicated", "--allow-root", cfg["data"])) as up:
        context = multiprocessing.get_context("spawn")
        barrier, results = context.Barrier(RANKS), context.Queue()
        args = ({**cfg, "socket": up.socket}, rounds, barrier, results)
        ranks = [context.Process(target=train, args=(rank, *args)) for rank in range(RANKS)]
        for process in ranks:
            process.start()
        said = [results.get(timeout=600) for _ in ranks]
        for process in ranks:
            process.join(60)
        each: list[Times] = [times[WARM:] for _, times, _ in said]
        seconds = max(times[-1][3] for times in each) - min(times[0][0] for times in each)
        return {
            "seconds": seconds,
            "cpu": sum(cpu for _, _, cpu in said),
            "up_cpu": up.cpu(),
            "data_wait": data_wait(each) / (RANKS * seconds),
            "in_next": sum(came - called for times in each for called, came, _, _ in times) / (RANKS * seconds),
        }


def data_wait(each: list[Times]) -> float:
    """Seconds in which a rank was in the barrier while another one was in next()."""
    total = 0.0
    for step in zip(*each):
        for rank, (_, _, entered, left) in enumerate(step):
            others = [times for i, times in enumerate(step) if i != rank]
            total += max(0.0, *(min(left, came) - max(entered, called) for called, came, _, _ in others))
    return total


def write(path: Path, rows: int) -> None:
    line = ",".join(f"0.{i}" for i in range(8)) + "\n"
    part = path.with_name("." + path.name)
    part.write_text(line * rows)
    part.rename(path)


def scarce(cfg: dict[str, Any], folder: Path, log: Path) -> dict[str, float]:
    """New files come at about half the pace of the ranks; each belongs to one rank at first."""
    (folder / "grows").mkdir()
    spec = SPEC.format(root=folder / "grows", live=", end: never, refresh: 100ms", columns=COLUMNS)
    done = threading.Event()

    def writer() -> None:
        number = 0
        while not done.wait(2 * cfg["work"]):
            number += 1
            write(folder / "grows" / f"{number:06}.csv", RANKS * cfg["rows"])

    thread = threading.Thread(target=writer)
    thread.start()
    try:
        return run({**cfg, "steps": min(cfg["steps"], 150)}, True, spec, log)
    finally:
        done.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1024, help="of a batch")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--work", type=float, default=5, help="of a step, ms")
    parser.add_argument("--pairs", type=int, default=31)
    args = parser.parse_args()
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    with tempfile.TemporaryDirectory(prefix="hr-rounds-") as name:
        folder = Path(name)
        (folder / "rows").mkdir()
        for number in range(8):
            write(folder / "rows" / f"{number}.csv", RANKS * args.rows * args.steps // 4)
        cfg = {"rows": args.rows, "steps": args.steps, "work": args.work / 1000, "data": name}
        spec = SPEC.format(root=folder / "rows", live="", columns=COLUMNS)
        pairs: list[dict[bool, dict[str, float]]] = []
        for number in range(args.pairs):
            order = (True, False) if number % 2 else (False, True)
            pairs.append({rounds: run(cfg, rounds, spec, folder / "up.log") for rounds in order})
            said = ", ".join(f"{'rounds' if r else 'none'} {v['seconds']:.2f} s" for r, v in pairs[-1].items())
            say(f"pair {number + 1}: {said}")
        grown = scarce(cfg, folder, folder / "up.log")
    batches = RANKS * (args.steps - WARM)

    def cpu(of: dict[str, float]) -> float:
        return (of["cpu"] + of["up_cpu"]) / batches * 1e6

    cost = [p[True]["seconds"] / p[False]["seconds"] - 1 for p in pairs]
    figures = {
        "cost": statistics.median(cost),
        "cost_interval": interval(cost),
        "cost_range": [min(cost), max(cost)],
        "data_wait_in_collective": spread([p[True]["data_wait"] for p in pairs]),
        "data_wait_in_collective_none": spread([p[False]["data_wait"] for p in pairs]),
        "scarce_data_wait_in_collective": grown["data_wait"],
        "scarce_in_next": grown["in_next"],
        "cpu_us_per_batch": spread([cpu(p[True]) for p in pairs]),
        "cpu_us_per_batch_none": spread([cpu(p[False]) for p in pairs]),
        "step_ms": spread([p[False]["seconds"] / (args.steps - WARM) * 1000 for p in pairs]),
        "load": round(load, 2),
        "ranks": RANKS,
        "pairs": args.pairs,
    }
    print(json.dumps({k: round(v, 5) if isinstance(v, float) else v for k, v in figures.items()}), flush=True)


if __name__ == "__main__":
    main()
