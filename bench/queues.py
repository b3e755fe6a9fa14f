"""The common part of the benchmarks of Pulsar and RocketMQ: headrace and two ways of the queue's own
client, in one run.

It starts one real broker and fills it (bench/fill), with two topics of four partitions: `floats` (125
float32, 500 bytes) and `tsv`, the records of bench-decode. The queue's readers.py says what each reader
does. First it checks that headrace and the tuned reader read the same. Then they take turns within a
round, each in its own process, and ratios are taken within a round. It prints progress, and one JSON
object on the last line.

`headrace` is measured end to end: `headrace up`, leases, acks, socket, and `stream.step()` for each
batch in a trainer process. `all_cpu` is the CPU of its trainer and `up` together, and of all processes
of the others. The broker's work is not counted, but it shares the cores.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from bench import clicks, running
from bench.running import say, spread

FORMS = ("floats", "tsv")
READERS = ("ordinary", "tuned", "headrace")
SHARE = {"floats": 1, "tsv": 0.5}  # of --records
ORDINARY = 100_000  # records for the ordinary reader, which is slow
FLOATS = "decode: {format: binary, columns: [{name: x, dtype: float32, shape: [125]}]}\n"
Figures = dict[str, float]


class Queue(NamedTuple):
    name: str
    folder: Path  # the folder of requirements.txt
    source: Callable[[str, str], str]  # the spec's part, from a topic and the address that `fill` has printed

    @property
    def work(self) -> Path:
        return running.ROOT / "build" / "bench" / self.name

    def spec(self, form: str, broker: str) -> str:
        decode = FLOATS if form == "floats" else clicks.decode(form)
        return f"name: {form}\n{self.name}: {self.source(form, broker)}\n{decode}"

    @contextmanager
    def filled(self, records: int, *more: str) -> Iterator[str]:
        """Starts a broker with both topics, and gives its address."""
        lines = self.work / "clicks.tsv"
        made = int(records * SHARE["tsv"])
        args = [str(self.work / "decode"), "generate", "-format", "tsv", "-records", str(made), str(lines)]
        subprocess.run(args, check=True)
        args = [str(self.work / "fill"), "-broker", self.name, "-floats", str(records), "-tsv", str(lines), *more]
        with (self.work / "fill.log").open("w") as log:
            process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                assert process.stdout
                address = process.stdout.readline().strip()
                lines.unlink()
                if not address:
                    raise SystemExit(f"the broker did not start; see {log.name}")
                yield address
            finally:
                process.send_signal(signal.SIGINT)
                process.wait(60)

    def reader(self, which: str, form: str, broker: str, records: int, *check: str, **env: str) -> Figures:
        args = [sys.executable, "-m", f"bench.{self.name}.readers", which, form, broker, str(records), *check]
        env = running.environment(HEADRACE_BIN=str(running.BINARY), **env)
        pipe = subprocess.PIPE
        out = subprocess.run(args, check=True, stdout=pipe, text=True, timeout=300, env=env, cwd=running.ROOT)
        got: Figures = json.loads(out.stdout.splitlines()[-1])
        got["all_cpu_seconds"] = got["cpu_seconds"] + got["child_cpu_seconds"]
        return got

    def headrace(self, form: str, broker: str, records: int, *check: str) -> Figures:
        """One pass of a fresh `headrace up`."""
        with running.up(self.work / f"up-{form}.log", self.spec(form, broker)) as up:
            before = up.cpu()
            got = self.reader("headrace", form, broker, records, *check, HEADRACE_AGENT=up.socket)
            got["all_cpu_seconds"] += up.cpu() - before
            got["mib"] = up.most_mib()
            return got

    def one(self, which: str, form: str, broker: str, records: int, *check: str) -> Figures:
        if which == "headrace":
            return self.headrace(form, broker, records, *check)
        return self.reader(which, form, broker, min(records, ORDINARY) if which == "ordinary" else records, *check)

    def same_records(self, form: str, broker: str, records: int) -> None:
        """Checks that headrace and the official client read the same, by number and sum. It is also a warm-up."""
        ours, theirs = (self.one(which, form, broker, records, "check") for which in ("headrace", "tuned"))
        if ours["rows"] != theirs["rows"] or abs(ours["checksum"] - theirs["checksum"]) > 1e-9 * theirs["checksum"]:
            raise SystemExit(f"headrace read other records than the official client: {ours}, {theirs}")


def figures(rounds: list[dict[str, Figures]]) -> dict[str, list[float]]:
    def each(name: str, top: str, bottom: str) -> list[float]:
        return [r[name][top] / r[name][bottom] for r in rounds]

    def over(other: str, top: str, bottom: str) -> list[float]:
        return spread([a / b for a, b in zip(each("headrace", top, bottom), each(other, top, bottom))])

    out: dict[str, list[float]] = {}
    for other in ("ordinary", "tuned"):
        out[f"vs_{other}"] = over(other, "rows", "seconds")
        out[f"trainer_cpu_of_{other}"] = over(other, "cpu_seconds", "rows")
        out[f"all_cpu_of_{other}"] = over(other, "all_cpu_seconds", "rows")
    for name in reversed(READERS):
        out[f"{name}_records_per_s"] = spread(each(name, "rows", "seconds"))
        out[f"{name}_all_cpu_s_per_million"] = spread([1e6 * v for v in each(name, "all_cpu_seconds", "rows")])
    out["up_mib"] = spread([r["headrace"]["mib"] for r in rounds])
    return out


def arguments(about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--records", type=int, default=500_000, help="records of floats; tsv has half as many")
    parser.add_argument("--rounds", type=int, default=3)
    return parser


def main(queue: Queue, args: argparse.Namespace, *more: str) -> None:
    """more: arguments for `fill`."""
    running.prepare(queue.work, queue.folder / "requirements.txt", "./bench/decode", "./bench/fill")
    result: dict[str, object] = dict(vars(args))
    result["load"] = os.getloadavg()[0]  # load of the machine before the run
    with queue.filled(args.records, *more) as broker:
        for form in FORMS:
            records = int(args.records * SHARE[form])
            queue.same_records(form, broker, records)
            rounds = []
            for i in range(args.rounds):
                rounds.append({which: queue.one(which, form, broker, records) for which in READERS})
                last = ", ".join(f"{n} {f['rows'] / f['seconds'] / 1e6:.3f}" for n, f in rounds[-1].items())
                say(f"{form} round {i + 1} of {args.rounds}, million records/s: {last}")
            result.update({f"{form}_{name}": value for name, value in figures(rounds).items()})
    print(json.dumps(result))
