"""RocketMQ to numpy batches: headrace and two ways of the official Go client, in one run.

    python -m bench.rocketmq.bench [--records 500000] [--rounds 3] [--wide]

(--records is of floats; tsv has half as many.)

One real broker, started and filled here (bench/rocketmq/fill), with two topics of four
queues, written in batches of 1,000 records: `floats` (125 float32, 500 bytes) and `tsv`,
the records of bench-decode. The broker has its default limit of 32 messages for one
answer, or with --wide 1,024. readers.py says what each reader does. First what headrace
and the tuned reader read is compared. Then they take turns within a round, each in a
process of its own, and ratios are taken within a round. Prints progress, and one JSON
object on the last line.

`headrace` is end to end: `headrace up`, leases, acks, socket, and `stream.step()` per
batch in a trainer process. `all_cpu` is its trainer and `up` together; of the others,
Python and the Go process. The broker's work is not counted, but shares the cores.
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

from bench import clicks, running
from bench.running import say, spread

HERE = Path(__file__).resolve().parent
WORK = running.ROOT / "build" / "bench" / "rocketmq"
FORMS = ("floats", "tsv")
READERS = ("ordinary", "tuned", "headrace")
SHARE = {"floats": 1, "tsv": 0.5}  # of --records
ORDINARY = 100_000  # records for the ordinary reader, which is slow
Figures = dict[str, float]


def spec(form: str, address: str) -> str:
    head = f'name: {form}\nrocketmq: {{name_servers: ["{address}"], topic: {form}}}\n'
    if form == "floats":
        return head + "decode: {format: binary, columns: [{name: x, dtype: float32, shape: [125]}]}\n"
    return head + clicks.decode(form)


@contextmanager
def filled(records: int, wide: bool) -> Iterator[str]:
    """A broker with both topics; its name server's address."""
    lines = WORK / "clicks.tsv"
    made = int(records * SHARE["tsv"])
    args = [str(WORK / "decode"), "generate", "-format", "tsv", "-records", str(made), str(lines)]
    subprocess.run(args, check=True)
    args = [str(WORK / "fill"), "-floats", str(records), "-tsv", str(lines), *(["-wide"] if wide else [])]
    with (WORK / "fill.log").open("w") as log:
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


def reader(which: str, form: str, broker: str, records: int, *check: str, **env: str) -> Figures:
    args = [sys.executable, str(HERE / "readers.py"), which, form, broker, str(records), *check]
    env = running.environment(HEADRACE_BIN=str(running.BINARY), **env)
    out = subprocess.run(args, check=True, stdout=subprocess.PIPE, text=True, timeout=300, env=env)
    got: Figures = json.loads(out.stdout.splitlines()[-1])
    got["all_cpu_seconds"] = got["cpu_seconds"] + got["child_cpu_seconds"]
    return got


def headrace(form: str, broker: str, records: int, *check: str) -> Figures:
    """One pass of a fresh `headrace up`."""
    with running.up(WORK / f"up-{form}.log", spec(form, broker)) as up:
        before = up.cpu()
        got = reader("headrace", form, broker, records, *check, HEADRACE_AGENT=up.socket)
        got["all_cpu_seconds"] += up.cpu() - before
        return got


def one(which: str, form: str, broker: str, records: int, *check: str) -> Figures:
    if which == "headrace":
        return headrace(form, broker, records, *check)
    return reader(which, form, broker, min(records, ORDINARY) if which == "ordinary" else records, *check)


def same_records(form: str, broker: str, records: int) -> None:
    """What headrace and the official client read is the same, by number and sum; also a warm-up."""
    ours, theirs = (one(which, form, broker, records, "check") for which in ("headrace", "tuned"))
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
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=500_000, help="of floats; tsv has half as many")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--wide", action="store_true", help="a broker that gives 1,024 messages in one answer")
    args = parser.parse_args()
    running.prepare(WORK, HERE / "requirements.txt", "./bench/decode", "./bench/rocketmq/fill")
    result: dict[str, object] = {"records": args.records, "rounds": args.rounds, "wide": args.wide}
    result["load"] = os.getloadavg()[0]  # of the machine before it began
    with filled(args.records, args.wide) as broker:
        for form in FORMS:
            records = int(args.records * SHARE[form])
            same_records(form, broker, records)
            rounds = []
            for i in range(args.rounds):
                rounds.append({which: one(which, form, broker, records) for which in READERS})
                last = ", ".join(f"{n} {f['rows'] / f['seconds'] / 1e6:.3f}" for n, f in rounds[-1].items())
                say(f"{form} round {i + 1} of {args.rounds}, million records/s: {last}")
            result.update({f"{form}_{name}": value for name, value in figures(rounds).items()})
    print(json.dumps(result))


if __name__ == "__main__":
    main()
