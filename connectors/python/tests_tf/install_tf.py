"""Installs TensorFlow for the tests, for the CPU.

    python install_tf.py 2.15            installs, if that is not done; prints the Python to use
    python install_tf.py 2.21            the newest one, with Keras 3 and without Estimator
    python install_tf.py 2.15 --force    again

2.15 is the last version with Estimator, and needs Python 3.10 or 3.11. The environment lies
outside the tree, in $HEADRACE_CACHE or ~/.cache/headrace, in a folder named after the
versions of TensorFlow and Python. It is made again when the list of packages or this
program changes.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
LINES = ("2.15", "2.21")
PYTHONS = {"2.15": (3, 11), "2.21": (3, 13)}  # the newest Python that there are wheels for


def say(text: str) -> None:
    print(f"TensorFlow for tests: {text}", file=sys.stderr, flush=True)


def run(*command: str | Path) -> str:
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"TensorFlow for tests: {' '.join(map(str, command[:6]))} ... failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def version_in(packages: Path) -> str:
    found = re.search(r"^tensorflow-cpu==(\S+)$", packages.read_text(), re.MULTILINE)
    if found is None:
        sys.exit(f"TensorFlow for tests: {packages} pins no tensorflow-cpu")
    return found.group(1)


def python_for(line: str) -> str:
    """An interpreter that this line of TensorFlow has wheels for."""
    newest = PYTHONS[line]
    if sys.version_info[:2] <= newest:
        return sys.executable
    for minor in range(newest[1], 9, -1):
        found = shutil.which(f"python3.{minor}")
        if found is not None:
            return found
    sys.exit(f"TensorFlow for tests: {line} needs Python 3.10 to 3.{newest[1]}: install one")


def install(home: Path, packages: Path, python: str) -> None:
    began = time.monotonic()
    shutil.rmtree(home, ignore_errors=True)
    say(f"making {home}")
    run(python, "-m", "venv", home)
    say(f"installing {packages.name}: TensorFlow {version_in(packages)} is a download of 200 to 300 MB")
    run(home / "bin" / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
        "-r", packages)  # fmt: skip
    check = "import tensorflow as tf; print(tf.add(1, 1).numpy())"
    if run(home / "bin" / "python", "-c", check).strip() != "2":
        sys.exit("TensorFlow for tests: it imports and does not add up")
    say(f"ready after {time.monotonic() - began:.0f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("line", choices=LINES, help="which TensorFlow")
    parser.add_argument("--force", action="store_true", help="install again")
    args = parser.parse_args()
    packages = HERE / f"requirements-{args.line}.txt"
    python = python_for(args.line)
    tag = run(python, "-c", "import sys; print('py%d.%d' % sys.version_info[:2])").strip()
    cache = Path(os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace")
    home = cache / f"tensorflow-{version_in(packages)}-{tag}"
    cache.mkdir(parents=True, exist_ok=True)
    want = hashlib.sha256(packages.read_bytes() + Path(__file__).read_bytes()).hexdigest()
    ready = home / ".ready"
    with open(cache / f"{home.name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if args.force or not ready.exists() or ready.read_text() != want:
            install(home, packages, python)
            ready.write_text(want)
    print(home / "bin" / "python")


if __name__ == "__main__":
    main()
