"""Runs every benchmark and rewrites docs/BENCHMARKS.md from what they print.

A benchmark is a make target that shows progress and prints its figures as one
JSON object on its last line. Nothing in docs/BENCHMARKS.md is written by hand.

    python bench/run.py [--only lease,makespan] [--repeat 1]

With --only, the figures of the other sections are kept.
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

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from bench.goals import judged, titled
from bench.tables import BENCHES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "BENCHMARKS.md"


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
    """A figure, a spread over runs, or several of them by name."""
    if isinstance(value, list):
        return ", ".join(number(v) for v in value)
    if not isinstance(value, dict):
        return number(value)
    if set(value) == {"median", "min", "max"}:
        return f"{number(value['median'])} ({number(value['min'])} to {number(value['max'])})"
    return ", ".join(f"{name} {show(v)}" for name, v in value.items())


def rows(figures: dict[str, object]) -> dict[str, object]:
    """The rows of the table. A group of figures has a row for each of them."""
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
    """The section of a benchmark that is on the page now."""
    if not PAGE.exists():
        return None
    title = rf"{re.escape(BENCHES[name].title)}(?: \(another run: [^)]*\))?"
    found = re.search(rf"^## {title}\n.*?(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    return found.group(0).rstrip() + "\n" if found else None


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the benchmarks and rewrite docs/BENCHMARKS.md.")
    parser.add_argument(
        "--only", default=",".join(BENCHES), help="benchmarks to run, comma-separated; none: only judge the goals again"
    )
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; all are shown (default 1)")
    args = parser.parse_args()
    chosen = args.only.split(",") if args.only != "none" else []
    if unknown := set(chosen) - set(BENCHES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")

    parts = []
    for name in BENCHES:
        text = section(name, [run(name) for _ in range(args.repeat)]) if name in chosen else kept(name)
        if text:
            parts.append(judged(text))
    head = (
        "# Benchmarks\n\nWritten by `make bench` from what the programs in bench/ printed; not edited by "
        'hand. Ratios are taken within one run; "A over B" means A divided by B. No test asserts these '
        "figures. A goal that was not reached is marked as missed. A section of another commit than the newest "
        "run says so below its title.\n"
    )
    PAGE.write_text("\n".join([head, *titled(parts)]))
    print(f"rewrote {PAGE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
