"""A delta compared with a whole save of the same table: bytes on storage, and seconds from save() until it
is durable. Whole saves and deltas alternate in one process. Before each of them 5 % of the rows are
changed and touched.

    make bench-deltas
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
WIDTH = 64  # float32


def trainer(cfg: dict) -> None:
    import headrace
    import numpy as np

    dice = np.random.default_rng(cfg["seed"])
    table = dice.random((cfg["bytes"] // (4 * WIDTH), WIDTH), np.float32)
    found: dict[str, list] = {"whole": [], "delta": []}
    with (
        headrace.dataset("rows").batches(1) as stream,
        headrace.Checkpointer(cfg["dir"], stream, deltas=["table"], full_every=2, keep=1) as ck,
    ):
        for step in range(1, 2 * cfg["rounds"] + 1):
            next(stream)
            stream.step(step)
            rows = dice.choice(len(table), len(table) // 20, replace=False)
            table[rows] += 1
            ck.touch("table", rows)
            began = time.perf_counter()
            saved = ck.save(step, {"table": table})
            blocked = time.perf_counter() - began
            path = saved.wait()
            took = time.perf_counter() - began
            size = sum(os.path.getsize(os.path.join(path, name)) for name in os.listdir(path))
            found["whole" if step % 2 else "delta"].append({"blocked": blocked, "took": took, "bytes": size})
    Path(cfg["out"]).write_text(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    root = HERE.parents[1]
    binary = os.environ.get("HEADRACE_BIN") or str(root / "build" / "headrace")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        work = Path(name)
        (work / "rows").mkdir()
        (work / "rows" / "rows.tsv").write_text("".join(f"{i}\n" for i in range(100)))
        spec = f'name: rows\nfiles: {{root: {work / "rows"}, paths: ["*.tsv"]}}\n'
        spec += 'decode: {format: tsv, columns: [{name: id, path: "0", dtype: int64}]}\n'
        (work / "rows.yaml").write_text(spec)
        cfg = {"dir": str(work / "ckpt"), "out": str(work / "found.json"), "bytes": args.mib << 20}
        cfg |= {"rounds": args.rounds, "seed": args.seed}
        env = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        env |= {"BENCH": json.dumps(cfg), "PYTHONPATH": str(root / "connectors" / "python" / "src")}
        command = [binary, "run", "--model", "replicated", "--http", "off", "--state", str(work / "state")]
        command += ["--socket", str(work / "a.sock"), "-f", str(work / "rows.yaml")]
        command += ["--", sys.executable, str(HERE / "deltas.py")]
        done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=work, timeout=1800)
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)
        found = json.loads(Path(cfg["out"]).read_text())
    figures: dict[str, float | list[float]] = {"load": round(os.getloadavg()[0], 1), "MiB": args.mib}
    for what in ("bytes", "took", "blocked"):
        ratios = [w[what] / d[what] for w, d in zip(found["whole"], found["delta"])]
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        figures[f"whole_over_delta_{what}"] = [round(middle, 2), round(low, 2), round(high, 2)]
        print(f"a whole save over a delta, {what:8}{middle:8.2f}  ({low:.2f} to {high:.2f})", flush=True)
    print(json.dumps(figures))


if __name__ == "__main__":
    trainer(json.loads(os.environ["BENCH"])) if "BENCH" in os.environ else main()
