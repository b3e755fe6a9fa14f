"""A Python environment for the tests of a connector, outside the tree.

    python connectors/python/environment.py ray connectors/python/tests_ray/requirements.txt
    python connectors/python/environment.py --force ...      installs again

It installs the packages that a list pins, if that is not done, and prints the Python to use.
The environment lies in $HEADRACE_CACHE or ~/.cache/headrace, in a folder named after the
connector and a hash of the list and this program: two checkouts that need other packages have
a folder each, and neither installs over the other's.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path


def run(*command: str | Path) -> None:
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}  # with it, pip would see other packages too
    done = subprocess.run([str(c) for c in command], check=False, capture_output=True, text=True, env=env)
    if done.returncode != 0:
        sys.exit(f"environment: {' '.join(map(str, command[:6]))} ... failed:\n{done.stdout}{done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--force", action="store_true", help="install again")
    parser.add_argument("name")
    parser.add_argument("packages", type=Path)
    args = parser.parse_args()
    cache = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")
    cache.mkdir(parents=True, exist_ok=True)
    want = hashlib.sha256(args.packages.read_bytes() + Path(__file__).read_bytes()).hexdigest()
    home = cache / f"{args.name}-py{sys.version_info[0]}.{sys.version_info[1]}-{want[:8]}"
    ready = home / ".ready"
    with open(cache / f"{home.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if args.force or not ready.exists() or ready.read_text() != want:
            began = time.monotonic()
            print(f"environment: installing {args.packages} into {home}", file=sys.stderr, flush=True)
            shutil.rmtree(home, ignore_errors=True)
            run(sys.executable, "-m", "venv", home)
            pip = [home / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            run(*pip, "--no-deps", "-r", args.packages)
            run(home / "bin" / "python", "-m", "pip", "check")
            ready.write_text(want)
            print(f"environment: ready after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    print(home / "bin" / "python")


if __name__ == "__main__":
    main()
