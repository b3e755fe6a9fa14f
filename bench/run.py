"""Run every benchmark and rewrite docs/BENCHMARKS.md from what they printed.

A benchmark is a make target that shows progress and prints its figures as one
JSON object on its last line. Nothing in docs/BENCHMARKS.md is written by hand.

    python bench/run.py [--only lease,makespan] [--repeat 1]

With --only, the other sections are taken over from the last run as they are.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "BENCHMARKS.md"


class Bench(NamedTuple):
    title: str
    text: str
    meanings: dict[str, str]  # of the figures, with the goals that they are held against


BENCHES = {
    "lease": Bench(
        "Durable lease and ack",
        "A pair is one grant and its ack, answered after fsync; the client is another process; 10,000 partitions.",
        {
            "batched": "pairs/s, 8 streams, batches of 100; goal 300,000",
            "batched10": "pairs/s, 8 streams, batches of 10",
            "single": "pairs/s, one grant and one ack per message, 8 streams, 4 outstanding; goal 30,000",
            "single_1": "the same, 1 outstanding",
            "grant_p99_ms": "ms from a lease request to its grant, 99th percentile",
        },
    ),
    "makespan": Bench(
        "Time over ideal",
        "The real cores of master and agents on a virtual clock, simulated trainers, 2,000,000 records; in "
        "each of 20 seeds one worker, any, is killed and comes back seconds later. The ideal: the living, "
        "each at its rate and never waiting. The alternative, fixed-size shards pulled in turn (a pull "
        "costs the wire and nothing else, deaths are known at once), plays the same seeds in the same run.",
        {
            "ratio": "time over ideal at 10:10:10:1, median; goal at most 1.03",
            "ratio_max": "the same, worst seed",
            "ratio_10_1": "time over ideal with two workers at 10:1, median",
            "ratio_10_1_max": "the same, worst seed",
            "rss_growth": "anonymous resident memory after 10^9 records over that after 10^7, leases of one "
            "batch; goal at most 1.05",
            "rss_kib": "the same in KiB, by number of records",
            "rss_growth_default": "with leases of two seconds",
            "rss_kib_default": "the same in KiB",
            "planner_ns": "ns per grant and its ack in the core, 10,000 partitions, batches of 100",
            "workers_10_10_10_1": "ratio: median (range); shards handed out; records done twice",
            "workers_10_1": "the same with two workers",
            "seeds": "",
            "records": "of the input",
        },
    ),
    "decode": Bench(
        "File to numpy batches",
        "TSV and JSON lines of a label, 13 numbers and 26 categories, to numpy arrays of the same shape; the "
        "contestants take turns in one run. bench/decode/contestants.py says what each does: pyarrow reads "
        "with one thread, and its categories are hashed by numpy, cheaper than XXH64; pyarrow_raw leaves them "
        "unhashed. Each figure is [median, min, max] over the rounds.",
        {
            f"{form}_{name}": meaning
            for form in ("tsv", "json")
            for name, meaning in {
                "vs_pyarrow": "records/s end to end (headrace up, leases, acks, trainer) over pyarrow's; goal 2",
                "vs_pyarrow_raw": "the same over pyarrow without hashing",
                "vs_python": "the same over per-record Python",
                "core_vs_pyarrow": "records per CPU second of the `up` process over pyarrow's",
                "trainer_cpu_of_pyarrow": "CPU of the trainer's process over pyarrow's; goal at most 0.05",
                "core_records_per_s": "records per CPU second of the `up` process",
                "decode_vs_pyarrow": "records per CPU second of the decoder alone over pyarrow's",
                "decode_vs_pyarrow_raw": "the same over pyarrow without hashing",
                "decode_records_per_cpu_s": "records per CPU second of the decoder alone, file to frames",
            }.items()
        },
    ),
    "acks": Bench(
        "The cost of acking every batch",
        "A trainer that steps each batch against one with track=False.",
        {
            "cost": "time added by acking each batch, as a share, median of the pairs; goal 0.02",
            "cost_range": "lowest, highest pair of runs",
            "cpu_cost": "the same in CPU time of trainer, agent and master",
        },
    ),
}


def machine() -> str:
    cpu = "unknown CPU"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            cpu = line.split(":", 1)[1].strip()
            break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    go = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    return (
        f"{cpu}, {os.cpu_count()} cores, {memory:.0f} GiB memory; Linux {'.'.join(platform.release().split('.')[:2])}; "
        f"{go}, Python {platform.python_version()}"
    )


def run(name: str) -> dict[str, object]:
    """The figures of `make bench-<name>`; its progress goes to our stderr."""
    last = ""
    command = ["make", "-s", f"bench-{name}"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout
        for line in bench.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            last = line if line.strip() else last
    if bench.returncode:
        raise SystemExit(f"make bench-{name} ended with exit status {bench.returncode}")
    try:
        figures = json.loads(last)
    except ValueError:
        raise SystemExit(f"make bench-{name}: the last line is not a JSON object: {last!r}") from None
    return dict(figures)


def number(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, int) or abs(value) >= 1000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.4g}"


def show(value: object) -> str:
    """A figure, a spread over runs, or some of these by name."""
    if isinstance(value, list):
        return ", ".join(number(v) for v in value)
    if not isinstance(value, dict):
        return number(value)
    if set(value) == {"median", "min", "max"}:
        return f"{number(value['median'])} ({number(value['min'])} to {number(value['max'])})"
    return ", ".join(f"{name} {show(v)}" for name, v in value.items())


def rows(figures: dict[str, object]) -> dict[str, object]:
    """The rows of the table: a figure that holds groups of figures is a row for each."""
    out: dict[str, object] = {}
    for key, value in figures.items():
        if isinstance(value, dict) and value and all(isinstance(v, dict) for v in value.values()):
            out.update({f"{key}.{name}": v for name, v in value.items()})
        else:
            out[key] = value
    return out


def section(name: str, runs: list[dict[str, object]]) -> str:
    title, text, meanings = BENCHES[name]
    tables = [rows(r) for r in runs]
    order = list(meanings)

    def place(key: str) -> int:
        group = key.split(".")[0]
        return order.index(group) if group in order else len(order)

    lines = [f"## {title}", "", text, ""]
    lines += ["| figure | " + "value | " * len(runs) + "meaning |", "|---|" + "---|" * len(runs) + "---|"]
    for key in sorted(tables[0], key=place):
        values = " | ".join(show(t.get(key, "")) for t in tables)
        lines.append(f"| `{key}` | {values} | {meanings.get(key.split('.')[0], '')} |")
    when = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    git = ["git", "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(git, cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
    lines += ["", f"`make bench-{name}`, {when}, commit {commit or 'unknown'}, on {machine()}."]
    return "\n".join(lines) + "\n"


def kept(name: str) -> str | None:
    """The section of a benchmark on the page as it is."""
    if not PAGE.exists():
        return None
    found = re.search(rf"^## {re.escape(BENCHES[name].title)}\n.*?(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    return found.group(0).rstrip() + "\n" if found else None


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the benchmarks and rewrite docs/BENCHMARKS.md.")
    parser.add_argument("--only", default=",".join(BENCHES), help="benchmarks to run, comma-separated")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; all are shown (default 1)")
    args = parser.parse_args()
    chosen = args.only.split(",")
    if unknown := set(chosen) - set(BENCHES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")

    parts = []
    for name in BENCHES:
        text = section(name, [run(name) for _ in range(args.repeat)]) if name in chosen else kept(name)
        if text:
            parts.append(text)
    head = (
        "# Benchmarks\n\nWritten by `make bench` from what the programs in bench/ printed; not edited by "
        "hand. Figures are of one machine on one day, printed and not asserted; ratios are taken within one "
        "run.\n"
    )
    PAGE.write_text("\n".join([head, *parts]))
    print(f"rewrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
