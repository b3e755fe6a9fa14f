"""tf.Example with 40 features: CPU of `headrace check`, which lists, checks both CRCs, decodes
and hashes, against tf.data with TFRecordDataset, batch(1024) and parse_example, which does not
hash. Both are run in turns; only the ratio means something on a shared machine.

    python run.py --tensorflow PYTHON [--records N] [--rounds N] [--bin headrace] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import re
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


def cpu_of(command: list[str]) -> tuple[float, str]:
    """CPU seconds of a process, and what it printed."""
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if process.returncode != 0:
        raise SystemExit(f"{command[0]} failed: {text}")
    return used.ru_utime + used.ru_stime, text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tensorflow", required=True, help="a Python with TensorFlow")
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bin", default="build/headrace")
    parser.add_argument("--out")
    args = parser.parse_args()
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
            used, said = cpu_of([args.bin, "check", "-f", str(spec)])
            rows = int(re.search(r"([\d,]+) records, 0 bad", said)[1].replace(",", ""))
            ours.append(used / rows * 1e6)
            _, said = cpu_of([*examples, "read", str(data)])
            rows, used = said.split()
            theirs.append(float(used) / int(rows) * 1e6)
    report = {
        "records": args.records,
        "headrace_cpu_s_per_million": round(statistics.median(ours), 3),
        "tf_data_cpu_s_per_million": round(statistics.median(theirs), 3),
        "times": round(statistics.median(t / o for t, o in zip(theirs, ours)), 2),
        "rounds": [[round(o, 3), round(t, 3)] for o, t in zip(ours, theirs)],
    }
    print(json.dumps(report, indent=2))
    if args.out:
        Path(args.out).write_text(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
