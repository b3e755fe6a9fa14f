"""Input of a trivial Estimator: Headrace's TSV beside tf.data's TFRecord + parse_example.

    python -m bench.tensorflow.bench [--records 1000000] [--runs 5]

Each record has 40 single float features. Both read the same numbers, in turns, in processes of
their own with TensorFlow 2.15 (install_tf.py). Prints the median, least and most of the
records/s, and the CPU that the trainer, and the agent beside it, take per record.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

from bench import running

HERE = Path(__file__).resolve().parent
INSTALL = running.ROOT / "connectors" / "python" / "tests_tf" / "install_tf.py"
FEATURES = 40
FILES = 8

WRITE = """
import random, sys
import tensorflow as tf
from pathlib import Path

records, files, features, folder = *map(int, sys.argv[1:4]), Path(sys.argv[4])
for f in range(files):
    rng = random.Random(f)
    with tf.io.TFRecordWriter(str(folder / f"{f}.tfrecord")) as out, (folder / f"{f}.tsv").open("w") as text:
        for _ in range(records // files):
            values = [rng.randrange(1000) / 8 for _ in range(features)]
            text.write("\\t".join(map(str, values)) + "\\n")
            named = {f"f{i}": tf.train.Feature(float_list=tf.train.FloatList(value=[v])) for i, v in enumerate(values)}
            out.write(tf.train.Example(features=tf.train.Features(feature=named)).SerializeToString())
"""


def spec(data: Path) -> str:
    columns = "".join(f'    - {{name: f{i}, path: "{i}", dtype: float32}}\n' for i in range(FEATURES))
    files = f'files: {{root: {data}, paths: ["*.tsv"]}}'
    return f"name: bench\n{files}\ndecode:\n  format: tsv\n  columns:\n{columns}"


def read(python: str, kind: str, rows: int, data: Path, socket: str) -> dict[str, float]:
    source = str(running.ROOT / "connectors" / "python" / "src")
    env = running.environment(PYTHONPATH=f"{source}:{running.ROOT}", HEADRACE_AGENT=socket, TF_CPP_MIN_LOG_LEVEL="2")
    command = [python, "-m", "bench.tensorflow.reader", kind, str(rows), str(data)]
    out = subprocess.run(command, env=env, cwd=running.ROOT, capture_output=True, text=True, timeout=1800)
    if out.returncode:
        raise SystemExit(f"{kind} failed:\n{out.stderr[-4000:]}")
    found: dict[str, float] = json.loads(next(x for x in reversed(out.stdout.splitlines()) if x.startswith("{")))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rows", type=int, default=1024, help="rows of a batch")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args()
    command = ["python3", str(INSTALL), "2.15"]
    python = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    rates: dict[str, list[float]] = {"headrace": [], "tfrecord": []}
    costs: dict[str, list[float]] = {"headrace": [], "tfrecord": [], "agent": []}
    with tempfile.TemporaryDirectory(prefix="hr-bench-") as name:
        data = Path(name)
        write = [python, "-c", WRITE, str(args.records), str(FILES), str(FEATURES), name]
        subprocess.run(write, check=True, env=running.environment(TF_CPP_MIN_LOG_LEVEL="2"))
        for run in range(args.runs):
            log = data / "up.log"
            with running.up(log, spec(data), more=("--model", "replicated", "--allow-root", name)) as up:
                before = up.cpu()
                ours = read(python, "headrace", args.rows, data, up.socket)
                costs["agent"].append((up.cpu() - before) / ours["records"] * 1e6)
            theirs = read(python, "tfrecord", args.rows, data, "")
            for kind, found in (("headrace", ours), ("tfrecord", theirs)):
                rates[kind].append(found["rate"])
                costs[kind].append(found["cpu"] / found["records"] * 1e6)
            running.say(f"run {run + 1}: headrace {ours['rate']:,.0f}/s, tfrecord {theirs['rate']:,.0f}/s")
    for kind in rates:
        median, least, most = running.spread(rates[kind])
        cost = running.spread(costs[kind])[0]
        running.say(f"{kind}: {median:,.0f} records/s ({least:,.0f} to {most:,.0f}), trainer {cost} us a record")
    running.say(f"agent and master beside headrace: {running.spread(costs['agent'])[0]} us a record")
    ratio = running.spread(rates["headrace"])[0] / running.spread(rates["tfrecord"])[0]
    part = running.spread(costs["headrace"])[0] / running.spread(costs["tfrecord"])[0]
    running.say(f"headrace reads {ratio:.2f} times the records/s, with {part:.2f} of the trainer's CPU")


if __name__ == "__main__":
    main()
