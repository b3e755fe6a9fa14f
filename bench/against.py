"""Runs benchmarks of this tree and of another commit in turns, and prints their ratios: this tree's figure over
the other's. It says what a change made faster or slower on a machine whose speed changes from minute to minute.

    make bench-against COMMIT=v0.1.0 [ONLY=lease,planner,feed,decode] [ROUNDS=5]

    lease     bench/lease: durable lease and ack pairs
    planner   BenchmarkPairs of shardsvc: the core alone
    feed      BenchmarkFeed of agent: from bytes in memory to the trainer's ring
    decode    bench/decode: file to numpy batches

The other commit is built in a temporary folder, with its own benchmark programs. A figure that only one of the
two prints, or that was the same in both, is left out. The last line is a JSON object: for each figure
[median, min, max] of the ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from bench.running import ROOT, say, spread

# The command that plays one round of a benchmark, in the root of a tree. build() has built the Go programs.
ROUND = {
    "lease": ["build/bench-lease", "--repeats", "1"],
    "planner": ["build/bench-planner", "-test.run", "^$", "-test.bench", "^BenchmarkPairs$"],
    "feed": ["build/bench-feed", "-test.run", "^$", "-test.bench", "^BenchmarkFeed$"],
    "decode": [sys.executable, "-m", "bench.decode.bench", "--rounds", "1"],
}
BUILT = [
    ["go", "build", "-trimpath", "-ldflags", "-s -w", "-o", "build/headrace", "./cmd/headrace"],
    ["go", "build", "-o", "build/bench-lease", "./bench/lease"],
    ["go", "test", "-c", "-o", "build/bench-planner", "./shardsvc"],
    ["go", "test", "-c", "-o", "build/bench-feed", "./agent"],
]
FOLDER = {"planner": "shardsvc", "feed": "agent"}  # where a benchmark of `go test` runs


def build(tree: Path) -> None:
    for command in BUILT:
        subprocess.run(command, check=True, cwd=tree)


def play(name: str, tree: Path) -> dict[str, float]:
    """The figures of one round, by name."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
    env["PYTHONPATH"] = str(tree / "connectors" / "python" / "src")
    program, *flags = ROUND[name]
    command = [str(tree / program) if program.startswith("build/") else program, *flags]
    folder = tree / FOLDER.get(name, "")
    done = subprocess.run(command, cwd=folder, env=env, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.strip().splitlines()
    if done.returncode or not lines:
        raise SystemExit(f"{' '.join(command)} ended with exit status {done.returncode}:\n{done.stdout}")
    if name in FOLDER:
        return dict(of_go_test(name, lines))
    return dict(flat(name, json.loads(lines[-1])))


def of_go_test(name: str, lines: list[str]) -> Iterator[tuple[str, float]]:
    """Each figure of a line such as `BenchmarkPairs/1-2  100  315 ns/op  12 B/op`, but the number of rounds."""
    for line in lines:
        if line.startswith("Benchmark") and len(fields := line.split()) > 2:
            for value, unit in zip(fields[2::2], fields[3::2]):
                yield f"{name}.{fields[0].removeprefix('Benchmark')} {unit}", float(value)


def flat(name: str, value: object) -> Iterator[tuple[str, float]]:
    """Each number in value under its path. Of [median, min, max] of one round, it is the first."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(f"{name}.{key}", inner)
    elif isinstance(value, list):
        if value and not isinstance(value[0], dict):
            yield from flat(name, value[0])
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield name, float(value)


def main() -> int:
    parser = argparse.ArgumentParser(description="Benchmarks of this tree over those of another commit, in turns.")
    parser.add_argument("commit", help="the other commit, tag or branch")
    parser.add_argument("--only", default=",".join(ROUND), help="benchmarks, with commas (default: all of %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="both trees run once in each round (default 5)")
    args = parser.parse_args()
    names = args.only.split(",")
    if unknown := [n for n in names if n not in ROUND]:
        parser.error(f"--only {unknown[0]}: no such benchmark; there are {', '.join(ROUND)}")
    if args.rounds < 1:
        parser.error("--rounds: at least one")

    with tempfile.TemporaryDirectory(prefix="headrace-against-") as folder:
        other = Path(folder) / "tree"
        subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(other)], check=True)
        commit = subprocess.run(["git", "rev-parse", "--verify", "-q", f"{args.commit}^{{commit}}"], cwd=ROOT,
                                stdout=subprocess.PIPE, text=True, check=False).stdout.strip()
        if not commit:
            parser.error(f"{args.commit} is no commit, tag or branch of {ROOT}")
        subprocess.run(["git", "checkout", "-q", "--detach", commit], check=True, cwd=other)
        for tree in ROOT, other:
            say(f"building {tree}")
            build(tree)
        ratios: dict[str, list[float]] = {}
        for i in range(args.rounds):
            for name in names:
                # The second one may find a warmer machine, so each is second in half of the rounds.
                order = [ROOT, other] if i % 2 else [other, ROOT]
                got = {tree: play(name, tree) for tree in order}
                for figure, value in got[ROOT].items():
                    if got[other].get(figure):
                        ratios.setdefault(figure, []).append(value / got[other][figure])
            say(f"round {i + 1} of {args.rounds}: " + ", ".join(f"{f} {r[-1]:.3g}" for f, r in ratios.items()))
    ratios = {figure: r for figure, r in ratios.items() if any(x != 1 for x in r)}
    for figure, r in ratios.items():
        median, least, most = spread(r)
        say(f"{figure:52} {median:.3g} ({least:.3g} to {most:.3g})")
    print(json.dumps({figure: spread(r) for figure, r in ratios.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
