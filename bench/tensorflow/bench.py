"""Input of a trivial Estimator: Headrace's TSV and TFRecord beside tf.data's TFRecord + parse_example.

    python -m bench.tensorflow.bench [--records 1000000] [--runs 5]

Each record has 40 single float features. All three read the same numbers, in turns, each in its own
process with TensorFlow 2.15 (install_tf.py). The two readers of TFRecord read the same files. CPU is
that of the trainer's process, and that of all processes. The last line is one JSON object: [median,
least, most] over the runs. Each ratio is of one run.
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
OURS = ("tsv", "tfrecord")

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


def spec(data: Path, kind: str) -> str:
    at = "{i}" if kind == "tsv" else "f{i}"
    columns = "".join(f'    - {{name: f{i}, path: "{at.format(i=i)}", dtype: float32}}\n' for i in range(FEATURES))
    files = f'files: {{root: {data}, paths: ["*.{kind}"]}}'
    return f"name: bench\n{files}\ndecode:\n  format: {kind}\n  columns:\n{columns}"


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
    runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in (*OURS, "tf.data")}
    with tempfile.TemporaryDirectory(prefix="hr-bench-") as name:
        data = Path(name)
        write = [python, "-c", WRITE, str(args.records), str(FILES), str(FEATURES), name]
        subprocess.run(write, check=True, env=running.environment(TF_CPP_MIN_LOG_LEVEL="2"))
        for run in range(args.runs):
            for kind in OURS:
                more = ("--model", "replicated", "--allow-root", name)
                with running.up(data / "up.log", spec(data, kind), more=more) as up:
                    before = up.cpu()
                    found = read(python, "headrace", args.rows, data, up.socket)
                    runs[kind].append({**found, "agent": up.cpu() - before})
            runs["tf.data"].append(read(python, "tfrecord", args.rows, data, ""))
            running.say(
                f"run {run + 1}: " + ", ".join(f"{kind} {all_[-1]['rate']:,.0f}/s" for kind, all_ in runs.items())
            )
    result: dict[str, object] = dict(vars(args))
    for kind, all_ in runs.items():
        result[f"{kind.replace('.', '_')}_records_per_s"] = running.spread([r["rate"] for r in all_])
        result[f"{kind.replace('.', '_')}_trainer_us_per_record"] = running.spread(
            [1e6 * r["cpu"] / r["records"] for r in all_]
        )
    for kind in OURS:
        pairs = list(zip(runs[kind], runs["tf.data"]))
        result[f"{kind}_vs_tf_data"] = running.spread([a["rate"] / b["rate"] for a, b in pairs])
        result[f"{kind}_trainer_cpu_of_tf_data"] = running.spread([a["cpu"] / b["cpu"] for a, b in pairs])
        result[f"{kind}_all_cpu_of_tf_data"] = running.spread([(a["cpu"] + a["agent"]) / b["cpu"] for a, b in pairs])
        rate, trainer = result[f"{kind}_vs_tf_data"], result[f"{kind}_trainer_cpu_of_tf_data"]
        running.say(f"{kind}: {rate} times tf.data's records/s (goal 4), with {trainer} of its CPU (goal 0.2)")
    print(json.dumps(result))


if __name__ == "__main__":
    main()
