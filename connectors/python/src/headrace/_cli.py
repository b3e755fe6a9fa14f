"""The command `headrace`: the binary that the wheel carries, or the checkout's own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

CARRIED = Path(__file__).with_name("bin") / "headrace"
# What `make build` made, where this is a checkout's connectors/python/src/headrace.
CHECKOUT = Path(__file__).resolve().parents[1] / ".." / ".." / ".."


def binary() -> str:
    """The binary's path. Raises FileNotFoundError that says what to do."""
    named = os.environ.get("HEADRACE_BIN")
    if named:
        path = shutil.which(named)
        if path is None:
            raise FileNotFoundError(f"HEADRACE_BIN={named} is not an executable file")
        return path
    if os.access(CARRIED, os.X_OK):
        return str(CARRIED)
    built = CHECKOUT / "build" / "headrace"
    if (CHECKOUT / "connectors" / "python" / "pyproject.toml").exists() and os.access(built, os.X_OK):
        return str(built.resolve())
    raise FileNotFoundError(
        "this installation of the headrace package carries no binary (it was not made from a wheel): "
        "run `make build` in a checkout, or set HEADRACE_BIN to a binary, or install the wheel of `make wheel`"
    )


def main() -> None:
    """Becomes the binary, with our arguments."""
    try:
        path = binary()
    except FileNotFoundError as error:
        print(f"headrace: {error}", file=sys.stderr)
        sys.exit(1)
    os.execv(path, ["headrace", *sys.argv[1:]])
