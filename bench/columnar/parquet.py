"""Parquet, 40 columns: the CPU of our source and decoder, which make the bytes of frames, is compared
with that of pyarrow's iter_batches on one thread, which makes numpy arrays. End to end: a trainer
with a step for each batch, beside `headrace up`, with leases and acks. They take turns: on a shared
machine only the ratios mean something. The last line is one JSON object: [median, least, most] over
the rounds. Each ratio is of one round.

    python -m bench.columnar.parquet --reader PROGRAM [--records N] [--rounds N]

numeric   a label, 13 floats (one value in ten is null), 26 int64
strings   the same with 26 texts of 8 bytes for the int64, hashed into 2**20 buckets. pyarrow
          reads them as dictionaries. numpy hashes the entries once for each dictionary, with
          three multiplies: less work than XXH64, and possible because all have 8 bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench import running

FLOATS, IDS = [f"x{i}" for i in range(13)], [f"c{i}" for i in range(26)]
BATCHES, KINDS = (1024, 65536), ("numeric", "strings")
SELF = [sys.executable, "-m", "bench.columnar.parquet"]


def write(folder: Path, kind: str, records: int) -> None:
    rng = np.random.default_rng(1)
    words = np.array([f"{i * 2654435761 % 2**32:08x}" for i in range(20_000)])
    for part in range(2):
        n = records // 2
        columns: dict[str, Any] = {"label": rng.integers(2, size=n).astype(np.float32)}
        for name in FLOATS:
            columns[name] = pa.array(rng.random(n, dtype=np.float32), mask=rng.random(n) < 0.1)
        for name in IDS:
            ids = np.minimum(rng.zipf(1.2, size=n), len(words)) - 1
            columns[name] = ids if kind == "numeric" else words[ids]
        pq.write_table(pa.table(columns), folder / f"part-{part}.parquet", row_group_size=250_000)


def spec(root: Path, kind: str) -> str:
    lines = ["name: rows", f"files: {{root: {root}}}", "decode:", "  format: parquet", "  columns:"]
    lines += [f"    - {{name: {c}, path: {c}, dtype: float32, default: 0}}" for c in ["label", *FLOATS]]
    more = "" if kind == "numeric" else ", hash: {buckets: 1048576}"
    lines += [f"    - {{name: {c}, path: {c}, dtype: int64{more}}}" for c in IDS]
    return "\n".join(lines) + "\n"


def hashed(texts: pa.Array) -> np.ndarray:
    data = texts.buffers()[-1]
    h = np.frombuffer(data, np.uint64, len(texts), 8 * texts.offset) * np.uint64(0x9E3779B185EBCA87)
    h = (h ^ (h >> np.uint64(29))) * np.uint64(0xC2B2AE3D27D4EB4F)
    h = (h ^ (h >> np.uint64(32))) * np.uint64(0x165667B19E3779F9)
    return (h & np.uint64((1 << 20) - 1)).astype(np.int64)


def pyarrow(folder: Path, kind: str, rows: int) -> None:
    """Reads as users of pyarrow do, and prints rows and CPU seconds."""
    known: dict[str, tuple[pa.Array, np.ndarray]] = {}

    def bucket(name: str, column: pa.DictionaryArray) -> np.ndarray:
        entries = column.dictionary
        last = known.get(name)
        if last is None or [b and b.address for b in last[0].buffers()] != [b and b.address for b in entries.buffers()]:
            last = known[name] = (entries, hashed(entries))
        return last[1][column.indices.to_numpy()]

    before = resource.getrusage(resource.RUSAGE_SELF)
    total = 0
    for file in sorted(folder.glob("*.parquet")):
        reader = pq.ParquetFile(file, read_dictionary=IDS if kind == "strings" else None)
        for batch in reader.iter_batches(rows, use_threads=False):
            arrays = [pc.fill_null(batch[c], 0).to_numpy(zero_copy_only=False) for c in ["label", *FLOATS]]
            arrays += [batch[c].to_numpy() if kind == "numeric" else bucket(c, batch[c]) for c in IDS]
            total += len(arrays[0])
    after = resource.getrusage(resource.RUSAGE_SELF)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"rows": total, "cpu_seconds": used}))


def train(rows: int) -> None:
    """A trainer that takes every column of every batch and steps it. Prints rows and CPU seconds."""
    import headrace

    total, before = 0, None
    with headrace.dataset("rows").batches(rows) as stream:
        for b in stream:
            before = before or resource.getrusage(resource.RUSAGE_SELF)
            columns = [b[name] for name in b]
            total += len(columns[0])
            stream.step()
    after = resource.getrusage(resource.RUSAGE_SELF)
    assert before is not None
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"rows": total, "cpu_seconds": used}))


def end_to_end(kind: str, data: Path, records: int, rounds: int) -> dict[str, Any]:
    trainer, everything = [], []
    read = [*SELF, "--read", str(data), kind, str(BATCHES[0])]
    for _ in range(rounds):
        more = ("--allow-root", str(data))
        with running.up(data.parent / "up.log", spec(data, kind), more=more) as up:
            before = up.cpu()
            env = running.environment(HEADRACE_AGENT=up.socket)
            ours = cpu([*SELF, "--train", str(BATCHES[0])], records, env)
            beside = (up.cpu() - before) / records * 1e6
        theirs = cpu(read, records, running.environment())
        trainer.append(ours / theirs)
        everything.append((ours + beside) / theirs)
    return {
        f"{kind}_trainer_cpu_of_pyarrow": running.spread(trainer),
        f"{kind}_all_cpu_of_pyarrow": running.spread(everything),
    }


def cpu(command: list[str], records: int, env: dict[str, str] | None = None) -> float:
    """CPU seconds for a million rows."""
    said = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, env=env, cwd=running.ROOT).stdout)
    if said["rows"] != records:
        raise SystemExit(f"{command[0]} read {said['rows']} rows of {records}")
    return float(said["cpu_seconds"]) / records * 1e6


def compare(reader: str, kind: str, records: int, rounds: int) -> dict[str, Any]:
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        write(data, kind, records)
        (Path(folder) / "rows.yaml").write_text(spec(data, kind))
        for rows in BATCHES:
            ours, theirs = [], []
            for _ in range(rounds):
                ours.append(cpu([reader, str(Path(folder) / "rows.yaml"), str(rows)], records))
                theirs.append(cpu([*SELF, "--read", str(data), kind, str(rows)], records))
            report[f"{kind}_{rows}_vs_pyarrow"] = running.spread([t / o for t, o in zip(theirs, ours)])
            report[f"{kind}_{rows}_cpu_s_per_million"] = running.spread(ours)
            report[f"{kind}_{rows}_pyarrow_cpu_s_per_million"] = running.spread(theirs)
            running.say(f"{kind}, batches of {rows:,}: {report[f'{kind}_{rows}_vs_pyarrow']} times pyarrow")
        report.update(end_to_end(kind, data, records, rounds))
    return report


def main() -> None:
    if sys.argv[1:2] == ["--read"]:
        pyarrow(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
        return
    if sys.argv[1:2] == ["--train"]:
        train(int(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reader", required=True, help="the program built from bench/columnar")
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    report: dict[str, Any] = {**vars(args), "load": os.getloadavg()[0]}  # load of the machine before the run
    del report["reader"]
    for kind in KINDS:
        report.update(compare(args.reader, kind, args.records, args.rounds))
    print(json.dumps(report))


if __name__ == "__main__":
    main()
