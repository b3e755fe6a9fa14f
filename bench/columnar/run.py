"""tf.Example with 40 features. Our source and decoder list, check both CRCs, decode and hash into the
bytes of frames of 1,024 rows. Their CPU is compared with that of tf.data: TFRecordDataset,
batch(1024) and parse_example, which does not hash. They take turns: on a shared machine only the
ratio means something. The last line is one JSON object: [median, least, most] over the rounds. Each
ratio is of one round.

    python run.py --tensorflow PYTHON --reader PROGRAM [--records N] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent

SPEC = """
name: examples
files: {{root: {root}}}
decode:
  format: tfrecord
  columns:
    - {{name: label, path: label, dtype: float32}}
    - {{name: x, paths: [{floats}], dtype: float32}}
    - {{name: c, paths: [{words}], dtype: int64, hash: {{buckets: 1048576}}}}
"""


def spread(values: list[float]) -> list[float]:
    return [float(f"{f(values):.3g}") for f in (statistics.median, min, max)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensorflow", required=True, help="a Python with TensorFlow")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--reader", required=True, help="the program built from bench/columnar")
    args = parser.parse_args()
    load = os.getloadavg()[0]  # load of the machine before the run
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    examples = [args.tensorflow, str(HERE / "examples.py")]
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        data.mkdir()
        subprocess.run([*examples, "write", str(data), str(args.records)], check=True)
        spec = Path(folder) / "examples.yaml"
        floats, words = (", ".join(f"{k}{i}" for i in range(n)) for k, n in (("x", 13), ("c", 26)))
        spec.write_text(SPEC.format(root=data, floats=floats, words=words))
        ours, theirs = [], []
        for _ in range(args.rounds):
            said = json.loads(
                subprocess.run([args.reader, str(spec), "1024"], check=True, stdout=subprocess.PIPE).stdout
            )
            if said["rows"] != args.records:
                raise SystemExit(f"{args.reader} read {said['rows']} rows of {args.records}")
            ours.append(said["cpu_seconds"] / args.records * 1e6)
            rows, used = subprocess.run(
                [*examples, "read", str(data)], check=True, stdout=subprocess.PIPE
            ).stdout.split()
            theirs.append(float(used) / int(rows) * 1e6)
    report = {
        "vs_tf_data": spread([t / o for t, o in zip(theirs, ours)]),
        "headrace_cpu_s_per_million": spread(ours),
        "tf_data_cpu_s_per_million": spread(theirs),
        "load": load,
        "records": args.records,
        "rounds": args.rounds,
    }
    print(json.dumps(report))


if __name__ == "__main__":
    main()
