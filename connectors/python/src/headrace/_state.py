"""What a trainer saves: nested containers of arrays, as a tree and one file.

The arrays go to a safetensors file under the names of their places
(``model.weight``), which any reader of that format opens. The tree says how they
hang together and holds what is no array; it is JSON, in the manifest. Nothing is
pickled unless Checkpointer(pickle=...) names it, and that is never loaded unasked, so
nothing that is loaded can run.

A node of the tree is one of

    {"array": NAME, "of": "numpy" | "scalar" | "torch"}   scalar: a numpy scalar
    {"dict": [[KEY, node], ...]}                    keys: text, or {"int": ...}
    {"list": [node, ...]}  {"tuple": [node, ...]}
    {"value": null | true | 1 | 0.5 | "text"}
    {"int": "123..."}  {"float": "nan"}  {"bytes": "base64"}
    {"pickle": PLACE}     an object in a file of its own (_pickled.py), in version 2

Tensors and variables of TensorFlow and Keras are saved as numpy arrays, and come back as
such. An array that is in the state twice is one array twice after a restore as well.
"""

from __future__ import annotations

import base64
import functools
import importlib
import math
import sys
from typing import Any, NamedTuple

import numpy as np

from . import _pickled
from ._durable import no_room, room
from ._errors import CheckpointError

FORMAT = "headrace-python-state"
VERSION = 1
PICKLES = 2  # the version of a state with objects in files of their own
VERSIONS = (VERSION, PICKLES)

_EXACT = 1 << 53  # beyond it readers that take numbers for floats would round
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES = ("bool", *_INTEGERS, "float16", "float32", "float64")


class Captured(NamedTuple):
    """A state, copied: nothing that the trainer does later changes it."""

    tree: dict[str, Any]
    arrays: dict[str, Any]  # all numpy, or all torch
    torch: bool
    pickles: dict[str, bytes] = {}  # by place  # noqa: RUF012

    @property
    def size(self) -> int:
        """Bytes of the arrays."""
        return sum(int(a.nbytes) for a in self.arrays.values())


def capture(state: Any, pickles: frozenset[str] = frozenset()) -> Captured:
    """Copies a state; what lies at one of the places `pickles` is pickled. Raises TypeError
    that names the place of what cannot be saved, and of what is not there."""
    return _walk(state, copy=True, pickles=pickles)


def flatten(state: Any) -> Captured:
    """The arrays of a state where they lie: nothing is copied. Raises as capture()."""
    return _walk(state, copy=False)


def _walk(state: Any, copy: bool, pickles: frozenset[str] = frozenset()) -> Captured:
    walk = _Capture(copy, pickles)
    tree = walk.node(state, "", frozenset())
    if missing := sorted(pickles - set(walk.pickles)):
        raise TypeError(f"pickle= names {', '.join(map(repr, missing))}, which is not in the state")
    if walk.tensors and walk.arrays:
        # One file holds both; torch has every dtype that numpy has here, but for unsigned ones.
        for name, array in walk.arrays.items():
            try:
                walk.tensors[name] = _torch().from_numpy(array)
            except TypeError:
                raise TypeError(
                    f"state{name!r}: torch has no {array.dtype}; beside tensors save another type"
                ) from None
        return Captured(tree, walk.tensors, True, walk.pickles)
    return Captured(tree, walk.tensors or walk.arrays, bool(walk.tensors), walk.pickles)


def write(captured: Captured, path: str, metadata: dict[str, str]) -> None:
    """Writes the arrays as a safetensors file; it is not synced. Raises CheckpointError:
    the library's own errors (a full disk) do not say which file."""
    library = importlib.import_module("safetensors.torch" if captured.torch else "safetensors.numpy")
    try:
        with room(path, captured.size):
            library.save_file(captured.arrays, path, metadata=metadata)
    except importlib.import_module("safetensors").SafetensorError as error:
        raise CheckpointError(no_room(path, captured.size, str(error))) from error


def read(tree: dict[str, Any], path: str | None, pickles: dict[str, _pickled.Pickled] | None = None) -> Any:
    """The state that write() wrote. pickles: what is in files of their own, by place.
    Raises CheckpointError."""
    uses_torch = _mentions_torch(tree)
    if uses_torch:
        try:
            _torch()
        except ImportError:
            raise CheckpointError("the checkpoint holds torch tensors: install torch to restore it") from None
    arrays: dict[str, Any] = {}
    if path is not None:
        library = importlib.import_module("safetensors.torch" if uses_torch else "safetensors.numpy")
        arrays = library.load_file(path)
    return _build(tree, arrays, pickles or {})


def build(tree: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """The state of a tree and its arrays. Raises CheckpointError."""
    return _build(tree, arrays, {})


class _Capture:
    def __init__(self, copy: bool, names: frozenset[str]) -> None:
        self._copy = copy
        self._names = names
        self.pickles: dict[str, bytes] = {}
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.tensors: dict[str, Any] = {}
        self._known: dict[tuple[Any, ...], str] = {}  # what an array is of -> its name
        self._alive: list[Any] = []

    def node(self, value: Any, at: str, inside: frozenset[int]) -> dict[str, Any]:
        if at in self._names:
            self.pickles[at] = _pickled.dumps(value, at)
            return {"pickle": at}
        if isinstance(value, np.ndarray):
            return {"array": self._array(value, at), "of": "numpy"}
        if isinstance(value, np.generic):
            return {"array": self._array(np.asarray(value), at), "of": "scalar"}
        if _is_tensor(value):
            return {"array": self._tensor(value, at), "of": "torch"}
        if _is_tensorflows(value):
            return {"array": self._array(np.asarray(value.numpy()), at), "of": "numpy"}
        if isinstance(value, (dict, list, tuple)):
            return self._container(value, at, inside)
        return _leaf(value, at)

    def _container(self, value: Any, at: str, inside: frozenset[int]) -> dict[str, Any]:
        if id(value) in inside:
            raise TypeError(f"{_place(at)} contains itself")
        inside |= {id(value)}
        if isinstance(value, dict):
            return {"dict": [[_key(k, at), self.node(v, _join(at, k), inside)] for k, v in value.items()]}
        if isinstance(value, tuple) and type(value) is not tuple:
            raise TypeError(f"{_place(at)} is a {type(value).__name__}: save it as a dict or a plain tuple")
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [self.node(v, _join(at, i), inside) for i, v in enumerate(value)]}

    def _array(self, value: np.ndarray[Any, Any], at: str) -> str:
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"{_place(at)} is a masked array: save its .data and its .mask")
        if dtype_name(value.dtype) not in _DTYPES:
            raise TypeError(f"{_place(at)} is an array of {value.dtype}: save one of {', '.join(_DTYPES)}")
        key = (value.__array_interface__["data"][0], value.shape, value.strides, value.dtype)
        return self._name(key, at, value, lambda: self.arrays, lambda: np.array(value, order="C"))

    def _tensor(self, value: Any, at: str) -> str:
        if value.layout is not _torch().strided or value.is_quantized:
            raise TypeError(f"{_place(at)} is a {value.layout} tensor: save a dense one")
        if "DTensor" in type(value).__name__:
            raise TypeError(f"{_place(at)} is a DTensor: save with headrace.torch.distributed.save()")
        value = value.detach()
        key = (value.data_ptr(), tuple(value.shape), tuple(value.stride()), str(value.dtype), str(value.device))
        return self._name(key, at, value, lambda: self.tensors, lambda: value.to("cpu", copy=True).contiguous())

    def _name(self, key: tuple[Any, ...], at: str, value: Any, table: Any, copy: Any) -> str:
        if (value.size if isinstance(value, np.ndarray) else value.numel()) == 0:
            key = (at,)  # empty ones share addresses with anything
        if key in self._known:
            return self._known[key]
        name = at or "state"
        while name in self.arrays or name in self.tensors or name == "__metadata__":
            name += "_"  # {"a": {"b": x}, "a.b": y}
        self._alive.append(value)  # so that no address is used again meanwhile
        self._known[key] = name
        table()[name] = copy() if self._copy else value
        return name


@functools.lru_cache(maxsize=1024)
def dtype_name(dtype: Any) -> str:
    """numpy's or torch's name of a type, whatever its byte order."""
    if isinstance(dtype, np.dtype):
        return str(dtype.newbyteorder("=").name)
    return str(dtype).rpartition(".")[2]


def _leaf(value: Any, at: str) -> dict[str, Any]:
    if value is None or isinstance(value, (bool, str)):
        return {"value": value}
    if isinstance(value, int):
        return {"value": int(value)} if abs(value) < _EXACT else {"int": str(int(value))}
    if isinstance(value, float):
        return {"value": float(value)} if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": base64.b64encode(value).decode()}
    raise TypeError(
        f"{_place(at)} is a {type(value).__module__}.{type(value).__qualname__}: a state holds arrays, tensors, dicts, "
        "lists, tuples, numbers, text, bytes and None; put what it is made of there (a module's state_dict()), "
        f"or name its place to have it pickled into a file of its own: Checkpointer(..., pickle=[{at or 'PLACE'!r}])"
    )


def _key(key: Any, at: str) -> Any:
    if isinstance(key, str):
        return key
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        return {"int": str(int(key))}
    raise TypeError(f"{_place(at)} has the key {key!r}: keys are text or whole numbers")


def _join(at: str, key: Any) -> str:
    return f"{at}.{key}" if at else str(key)


def _place(at: str) -> str:
    return f"state {at!r}" if at else "the state"


def _build(node: Any, arrays: dict[str, Any], pickles: dict[str, _pickled.Pickled]) -> Any:
    try:
        return _built(node, arrays, pickles)
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"the checkpoint's tree of the state does not hold together: {error!r}") from None


def _built(node: dict[str, Any], arrays: dict[str, Any], pickles: dict[str, _pickled.Pickled]) -> Any:
    ((kind, value),) = ((k, v) for k, v in node.items() if k != "of")
    if kind == "array":
        array, of = arrays[value], node["of"]
        if of == "torch" or isinstance(array, np.ndarray):
            return array[()] if of == "scalar" else array
        return array.numpy()[()] if of == "scalar" else array.numpy()
    if kind == "dict":
        return {(k if isinstance(k, str) else int(k["int"])): _built(v, arrays, pickles) for k, v in value}
    if kind == "list":
        return [_built(v, arrays, pickles) for v in value]
    if kind == "tuple":
        return tuple(_built(v, arrays, pickles) for v in value)
    if kind == "pickle":
        return pickles[value]
    if kind == "bytes":
        return base64.b64decode(value)
    if kind == "value":
        return value
    numbers: dict[str, type] = {"int": int, "float": float}
    return numbers[kind](value)


def _mentions_torch(node: Any) -> bool:
    if isinstance(node, dict):
        return node.get("of") == "torch" or any(map(_mentions_torch, node.values()))
    return isinstance(node, list) and any(map(_mentions_torch, node))


def _is_tensor(value: Any) -> bool:
    torch = sys.modules.get("torch")  # without it nothing is a tensor
    return torch is not None and isinstance(value, torch.Tensor)


def _is_tensorflows(value: Any) -> bool:
    """A tensor or variable of TensorFlow or Keras that has a value."""
    module = type(value).__module__.partition(".")[0]
    return module in ("tensorflow", "keras") and hasattr(value, "numpy") and hasattr(value, "dtype")


def _torch() -> Any:
    return importlib.import_module("torch")
