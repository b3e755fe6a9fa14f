"""What lies in a checkpoint's folder, by its manifest.

A step that is saved twice has its state in state-2.safetensors: only the manifest says which
file counts.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file

MANIFEST = "headrace-manifest.json"


def whole(checkpoints: Path) -> list[Path]:
    """The folders that are checkpoints. A save that a kill cut short has no manifest."""
    return sorted(m.parent for m in checkpoints.glob(f"step-*/{MANIFEST}"))


def state(folder: Path) -> dict[str, torch.Tensor]:
    (name,) = [f["path"] for f in json.loads((folder / MANIFEST).read_text())["files"]]
    return load_file(folder / name)
