"""Checkpoints in memory: how long a save blocks, how long a restore takes, and how much of its speed the
trainer keeps while a checkpoint goes to storage. The floor is a copy of the same tensors into memory
that was used before, in the same process, in alternation.

    make bench-flash
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
SPEC = """
name: rows
files: {{root: {root}, paths: ["*.tsv"]}}
decode: {{format: tsv, columns: [{{name: id, path: "0", dtype: int64}}]}}
"""


def measure(tensors: int, size: int, rounds: int, persists: int, rivals: int, python: str, other: str | None) -> dict:
    """other: the folder of dlrover, if there is one."""
    binary = os.environ.get("HEADRACE_BIN") or str(HERE.parents[1] / "build" / "headrace")
    with tempfile.TemporaryDirectory(prefix="headrace-bench-") as name:
        work = Path(name)
        (work / "rows").mkdir()
        (work / "rows" / "rows.tsv").write_text("".join(f"{i}\n" for i in range(100_000)))
        (work / "rows.yaml").write_text(SPEC.format(root=work / "rows"))
        out = work / "found.json"
        cfg = {
            "dir": str(work / "ckpt"),
            "tensors": tensors,
            "bytes": size,
            "rounds": rounds,
            "persists": persists,
            "rivals": rivals,
            "out": str(out),
        }
        ours = {k: v for k, v in os.environ.items() if not k.startswith("HEADRACE_")}
        if other is not None:
            ours["HEADRACE_DLROVER"] = other
        source = str(HERE.parents[1] / "connectors" / "python" / "src")
        env = ours | {"BENCH": json.dumps(cfg), "PYTHONPATH": source}
        command = [
            binary,
            "run",
            "--model",
            "replicated",
            "--max-restarts",
            "2",
            "--http",
            "off",
            "--state",
            str(work / "state"),
        ]
        command += [
            "--socket",
            str(work / "a.sock"),
            "-f",
            str(work / "rows.yaml"),
            "--",
            python,
            str(HERE / "trainer.py"),
        ]
        done = subprocess.run(command, env=env, capture_output=True, text=True, cwd=work, timeout=1800)
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)
        found = json.loads(out.read_text())
    for name in ("restore_at_once", "restore"):
        if found[name]["source"] != "memory":
            raise SystemExit(f"it was restored from {found[name]['source']}:\n{done.stdout}{done.stderr}")
    ratios = sorted(over(found, "save", "floor"))
    restore = found["restore"]
    figures = {
        "floor_s": round(statistics.median(found["floor"]), 4),
        "save_over_floor_median": round(statistics.median(ratios), 3),
        "save_over_floor_p99": round(ratios[min(len(ratios) - 1, int(len(ratios) * 0.99))], 3),
        "first_save_over_floor": round(found["first"], 3),
        "save_beside_persist_over_floor": round(statistics.median(over(found, "save_beside", "floor_beside")), 3),
        "saves_left_out": found["saves_that_were_left_out"],
    }
    if found["persists_that_had_ended"]:
        print(f"{found['persists_that_had_ended']} checkpoints were on storage before the save beside", file=sys.stderr)
    for name in found:
        if name.startswith("rival_") and name != "rival_ours":
            times = statistics.median(over(found, name, "rival_ours"))
            figures[f"{name[len('rival_') :]}_blocks_times_ours"] = round(times, 2)
    figures |= {
        "durable_s": round(statistics.median(found["persist"]), 3),
        "durable_over_dd": round(statistics.median(over(found, "persist", "dd")), 3),
        "rate_kept_while_persisting": round(statistics.median(over(found, "rate_persist", "rate_alone")), 3),
    }
    if "rate_dcp" in found:
        kept = statistics.median(over(found, "rate_dcp", "rate_alone_dcp"))
        figures["rate_kept_while_dcp_saves"] = round(kept, 3)
    return figures | {
        "map_ms": round(1000 * restore["mapped_s"], 2),
        "bare_mmap_ms": round(1000 * restore["bare_mmap_s"], 2),
        "restore_call_ms": round(1000 * restore["called_s"], 1),
        "copy_into_model_over_warm_copy": round(restore["copied_s"] / restore["warm_copy_s"], 3),
        "ready_over_warm_copy": ready(restore),
        "ready_over_warm_copy_at_once": ready(found["restore_at_once"]),
    }


def over(found: dict, one: str, other: str) -> list[float]:
    return [a / b for a, b in zip(found[one], found[other])]


def ready(restore: dict) -> float:
    """restore() and the copy into the model, compared with a copy from memory that was used before."""
    return round((restore["called_s"] + restore["copied_s"]) / restore["warm_copy_s"], 3)


def torch_python() -> str:
    """The Python of `make test-torch`, which has torch for the CPU."""
    tests = HERE.parents[1] / "connectors" / "python" / "tests_torch"
    done = subprocess.run([sys.executable, str(tests / "install_torch.py")], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def dlrover(python: str) -> str | None:
    """The folder with dlrover, which this installs outside the source tree. None: installing failed."""
    cache = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")
    packages = HERE / "dlrover.txt"
    home = cache / f"dlrover-{hashlib.sha256(packages.read_bytes()).hexdigest()[:8]}"
    if not home.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=cache, prefix="dlrover-") as work:
            print(f"installing dlrover into {home}", file=sys.stderr, flush=True)
            pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--target", f"{work}/to"]
            done = subprocess.run([*pip, "-r", str(packages)], capture_output=True, text=True)
            if done.returncode != 0:
                print(f"dlrover is left out, it cannot be installed:\n{done.stderr}", file=sys.stderr, flush=True)
                return None
            os.rename(f"{work}/to", home)
    wants = "import sys; sys.path.append(sys.argv[1]); from dlrover.trainer.torch.flash_checkpoint.ddp import *"
    done = subprocess.run([python, "-c", wants, str(home)], capture_output=True, text=True)
    if done.returncode != 0:
        print(f"dlrover is left out, it cannot be imported:\n{done.stderr}", file=sys.stderr, flush=True)
        return None
    return str(home)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=16)
    parser.add_argument("--persists", type=int, default=4)
    parser.add_argument(
        "--rivals", type=int, default=3, help="turns of torch.save, DCP's async_save and DLRover; 0: without torch"
    )
    args = parser.parse_args()
    python = torch_python() if args.rivals else sys.executable
    other = dlrover(python) if args.rivals else None
    figures: dict[str, float] = {"load": round(os.getloadavg()[0], 1), "MiB": args.mib}
    for count in (66, 2000):
        for name, value in measure(
            count, args.mib << 20, args.rounds, args.persists, args.rivals, python, other
        ).items():
            print(f"{count:5} tensors  {name.replace('_', ' '):36}{value:>12}", flush=True)
            figures[f"t{count}_{name}"] = value
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
