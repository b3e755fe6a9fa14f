"""What lies in a checkpoint's folder, by its manifest.

A step that is saved twice has its state in state-2.safetensors: only the manifest says which
file counts.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

MANIFEST = "headrace-manifest.json"


def whole(checkpoints: Path) -> list[Path]:
    """The folders that are checkpoints. A save that a kill cut short has no manifest."""
    return sorted(m.parent for m in checkpoints.glob(f"step-*/{MANIFEST}"))


def ids(data: Path, audit: dict[str, Any]) -> list[int]:
    """The ids that begin in the ranges of an audit, as the files have them."""
    found = []
    for partition in audit["datasets"][0]["partitions"]:
        for r in (r for one in partition["passes"] for r in one["ranges"]):
            at = 0
            for line in (data / r["name"]).read_bytes().splitlines(keepends=True):
                if r["start"] <= at < r["end"]:
                    found.append(int(line.split(b"\t")[0]))
                at += len(line)
    return found


def state(folder: Path) -> dict[str, torch.Tensor]:
    (name,) = [f["path"] for f in json.loads((folder / MANIFEST).read_text())["files"]]
    return load_file(folder / name)
