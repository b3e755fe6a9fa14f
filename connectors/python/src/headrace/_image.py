"""A state as a safetensors image in a slot's memory.

The header is padded with spaces, so that the data begins at a whole page. The arrays
lie by size: multiples of a page first, then multiples of 64 bytes, then the rest, the
widest elements first. So every array is aligned, and there are no holes, which the
format forbids.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import mmap
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from ._copying import width
from ._errors import CheckpointError
from ._slots import PAGE, pages
from ._state import Captured, dtype_name

_LENGTH = 8
# safetensors' names; torch's and numpy's own names of them.
_NAMES = {
    "bool": "BOOL",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "uint8": "U8",
    "uint16": "U16",
    "uint32": "U32",
    "uint64": "U64",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "complex64": "C64",
}
_OWN = {name: own for own, name in _NAMES.items()}


class Layout:
    """Where each array of a state lies in an image."""

    def __init__(self, flat: Captured) -> None:
        self.shape = shape(flat)
        entries = []
        for name, dtype, dims, of_torch in self.shape:
            if dtype not in _NAMES:
                raise TypeError(f"state {name!r} is an array of {dtype}, which a checkpoint in memory cannot hold")
            each = width(flat.arrays[name])
            entries.append((name, dtype, dims, of_torch, each * math.prod(dims), each))
        entries.sort(key=lambda e: (e[4] % PAGE != 0, e[4] % 64 != 0, -e[5]))
        header, at = {}, 0
        for name, dtype, dims, _, size, _ in entries:
            header[name] = {"dtype": _NAMES[dtype], "shape": list(dims), "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(header, separators=(",", ":")).encode()
        length = pages(_LENGTH + len(text)) - _LENGTH
        self.header = length.to_bytes(_LENGTH, "little") + text.ljust(length)
        self.size = len(self.header) + at  # of the image
        self._entries = entries

    def views(self, memory: mmap.mmap) -> dict[str, Any]:
        """Where each array goes."""
        views, at = {}, PAGE + len(self.header)
        with _written_in_any_mode(self._entries):
            for name, dtype, dims, of_torch, size, _ in self._entries:
                if size:
                    views[name] = _view(memory, dtype, dims, of_torch, at)
                at += size
        return views


def load(memory: mmap.mmap, image: int, tree: Any) -> dict[str, Any]:
    """The arrays of an image, as views of its memory. Raises CheckpointError."""
    try:
        length = int.from_bytes(memory[PAGE : PAGE + _LENGTH], "little")
        begin = PAGE + _LENGTH + length
        if not 2 <= length <= image - _LENGTH:
            raise ValueError(f"its header has {length} bytes")
        header = json.loads(memory[PAGE + _LENGTH : begin])
        uses_torch = _torch_names(tree)
        arrays: dict[str, Any] = {}
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            start, stop = entry["data_offsets"]
            dims, own = tuple(entry["shape"]), _OWN[entry["dtype"]]
            if not 0 <= start <= stop <= image - _LENGTH - length:
                raise ValueError(f"{name} lies at {start} to {stop}")
            arrays[name] = _view(memory, own, dims, name in uses_torch, begin + start)
        return arrays
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"the image does not hold together: {error!r}") from None


def _written_in_any_mode(entries: list[Any]) -> AbstractContextManager[Any]:
    """A tensor that is made in torch's inference mode can be changed only there."""
    if not any(of_torch for _, _, _, of_torch, _, _ in entries):
        return contextlib.nullcontext()
    manager: AbstractContextManager[Any] = importlib.import_module("torch").inference_mode(False)
    return manager


def shape(flat: Captured) -> list[tuple[str, str, tuple[int, ...], bool]]:
    """What a layout depends on."""
    return [
        (name, dtype_name(a.dtype), tuple(a.shape), not isinstance(a, np.ndarray)) for name, a in flat.arrays.items()
    ]


def _view(memory: mmap.mmap, dtype: str, dims: tuple[int, ...], of_torch: bool, at: int) -> Any:
    count = math.prod(dims)
    if not of_torch:
        if count == 0:
            return np.empty(dims, dtype)
        return np.frombuffer(memory, dtype, count, at).reshape(dims)
    torch = importlib.import_module("torch")
    kind = getattr(torch, dtype)
    if count == 0:
        return torch.empty(dims, dtype=kind)
    return torch.frombuffer(memory, dtype=kind, count=count, offset=at).reshape(dims)


def _torch_names(tree: Any) -> set[str]:
    """The arrays that are torch's."""
    names, waiting = set(), [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            if node.get("of") == "torch":
                names.add(node["array"] if "array" in node else node["delta"])
            elif "array" not in node:
                waiting.extend(node.values())
    return names
