"""File to numpy batches: headrace, pyarrow, per-record Python, in one run.

    python -m bench.decode.bench [--records 1000000] [--rounds 5]

Records have a label, 13 numbers and 26 categories; the file is in the page
cache. contestants.py says what each contestant does and what is not counted.
The contestants take turns within a round, each in its own process. Ratios are taken within a round,
so that other work on the machine disturbs both sides alike. It prints progress, and one JSON object
on the last line. Each figure is [median, min, max] over the rounds.

`headrace` is measured end to end: `headrace up`, leases, acks, socket, and `stream.step()` for each
batch in a trainer process. Records are also given per CPU second of the `up` process, because its
master, agent and reading share the cores with the trainer: that is the figure of the decoding core.
`decode` is the Go decoder alone, from file to frames on one core.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from bench import clicks, running
from bench.running import say, spread

HERE = Path(__file__).resolve().parent
WORK = running.ROOT / "build" / "bench" / "decode"
HELPER = WORK / "decode"
PYTHON_RECORDS = 20_000  # per-record Python is too slow for the whole file
FORMATS = ("tsv", "json")
Figures = dict[str, float]


def spec(form: str) -> str:
    return f'name: clicks_{form}\nfiles: {{root: "{WORK}", paths: [clicks.{form}]}}\n' + clicks.decode(form)


def prepare(records: int) -> None:
    """The tools and the input. Both formats have the same records."""
    running.prepare(WORK, HERE / "requirements.txt", "./bench/decode")
    for form in FORMATS:
        path = WORK / f"clicks.{form}"
        stamp = WORK / f"{form}.records"
        if not path.exists() or not stamp.exists() or stamp.read_text() != str(records):
            say(f"writing {records:,} records to {path.relative_to(running.ROOT)}")
            args = [str(HELPER), "generate", "-format", form, "-records", str(records), str(path)]
            subprocess.run(args, check=True)
            stamp.write_text(str(records))
        (WORK / f"{form}.yaml").write_text(spec(form))
        with path.open("rb") as f:  # so that it is in the page cache
            while f.read(1 << 24):
                pass


def contestant(which: str, form: str, rows: int, limit: int, **env: str) -> Figures:
    args = [sys.executable, str(HERE / "contestants.py"), which, form, str(WORK / f"clicks.{form}")]
    args += [str(rows), str(limit)]
    out = subprocess.run(
        args, check=True, stdout=subprocess.PIPE, text=True, timeout=300, env=running.environment(**env)
    )
    return json.loads(out.stdout.splitlines()[-1])


def headrace(form: str, rows: int, records: int) -> Figures:
    """One pass of a fresh `headrace up`."""
    with running.up(WORK / f"up-{form}.log", spec(form)) as up:
        before = up.cpu()
        got = contestant("headrace", form, rows, records, HEADRACE_AGENT=up.socket)
        got["up_cpu_seconds"] = up.cpu() - before
        return got


def helper(form: str, rows: int) -> Figures:
    args = [str(HELPER), "read", "-spec", str(WORK / f"{form}.yaml"), "-rows", str(rows), str(WORK / f"clicks.{form}")]
    out = subprocess.run(args, check=True, capture_output=True, text=True, env={**os.environ, "GOMAXPROCS": "1"})
    return json.loads(out.stdout)


def one_round(form: str, rows: int, records: int, product: bool) -> dict[str, Figures]:
    got = {
        "decode": helper(form, rows),
        "pyarrow": contestant("pyarrow", form, rows, records),
        "pyarrow_raw": contestant("pyarrow_raw", form, rows, records),
        "python": contestant("python", form, rows, PYTHON_RECORDS),
    }
    if product:
        got["headrace"] = headrace(form, rows, records)
    for name, f in got.items():
        want = PYTHON_RECORDS if name == "python" else records
        if not want <= f["rows"] < want + rows:
            raise SystemExit(f"{name} read {f['rows']} of {want} records")
        if name == "headrace" and abs(f["checksum"] - got["pyarrow"]["checksum"]) > 1e-6 * f["checksum"]:
            raise SystemExit(f"headrace read other records than pyarrow: {f['checksum']}, {got['pyarrow']['checksum']}")
    return got


def figures(rounds: list[dict[str, Figures]]) -> dict[str, list[float]]:
    def rate(name: str, by: str = "seconds") -> list[float]:
        return [r[name]["rows"] / r[name][by] for r in rounds]

    def ratio(a: list[float], b: list[float]) -> list[float]:
        return spread([x / y for x, y in zip(a, b)])

    out: dict[str, list[float]] = {}
    if "headrace" in rounds[0]:
        core = rate("headrace", "up_cpu_seconds")
        trainer = [r["headrace"]["cpu_seconds"] for r in rounds]
        out["vs_pyarrow"] = ratio(rate("headrace"), rate("pyarrow"))
        out["vs_pyarrow_raw"] = ratio(rate("headrace"), rate("pyarrow_raw"))
        out["vs_python"] = ratio(rate("headrace"), rate("python"))
        product = [r["headrace"] for r in rounds]
        own = [(p["cpu_seconds"] + p["up_cpu_seconds"]) / p["rows"] for p in product]
        for rival in ("pyarrow", "pyarrow_raw", "python"):
            out[f"all_cpu_of_{rival}"] = ratio(own, [r[rival]["cpu_seconds"] / r[rival]["rows"] for r in rounds])
        out["core_vs_pyarrow"] = ratio(core, rate("pyarrow", "cpu_seconds"))
        out["trainer_cpu_of_pyarrow"] = ratio(trainer, [r["pyarrow"]["cpu_seconds"] for r in rounds])
        out["core_records_per_s"] = spread(core)
    out["decode_vs_pyarrow"] = ratio(rate("decode", "cpu_seconds"), rate("pyarrow", "cpu_seconds"))
    out["decode_vs_pyarrow_raw"] = ratio(rate("decode", "cpu_seconds"), rate("pyarrow_raw", "cpu_seconds"))
    out["decode_records_per_cpu_s"] = spread(rate("decode", "cpu_seconds"))
    for name in rounds[0]:
        out[f"{name}_records_per_s"] = spread(rate(name))
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=1024, help="rows of a batch")
    parser.add_argument("--without-product", action="store_true", help="only the decoder and the alternatives")
    args = parser.parse_args()
    prepare(args.records)
    result: dict[str, object] = {"records": args.records, "rows_per_batch": args.rows, "rounds": args.rounds}
    for form in FORMATS:
        rounds = []
        for i in range(args.rounds):
            rounds.append(one_round(form, args.rows, args.records, not args.without_product))
            last = ", ".join(f"{n} {f['rows'] / f['seconds'] / 1e6:.2f}" for n, f in rounds[-1].items())
            say(f"{form} round {i + 1} of {args.rounds}, million records/s: {last}")
        result.update({f"{form}_{name}": value for name, value in figures(rounds).items()})
    print(json.dumps(result))


if __name__ == "__main__":
    main()
