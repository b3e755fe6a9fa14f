"""The state that a trainer saves: nested containers of arrays, as a tree and one file.

The arrays go to a safetensors file under the names of their places (``model.weight``).
Any reader of that format opens it. The tree has the structure of the state and all values
that are no arrays; it is JSON, in the manifest. Nothing is pickled unless
Checkpointer(pickle=...) names it. A pickle is never loaded unasked, so a restore runs no
code from a checkpoint.

A node of the tree is one of

    {"array": NAME, "of": "numpy" | "scalar" | "torch"}   scalar: a numpy scalar
    {"dict": [[KEY, node], ...]}                    keys: text, or {"int": ...}
    {"list": [node, ...]}  {"tuple": [node, ...]}
    {"value": null | true | 1 | 0.5 | "text"}
    {"int": "123..."}  {"float": "nan"}  {"bytes": "base64"}
    {"pickle": PLACE}     an object in a file of its own (_pickled.py), in version 2
    {"delta": NAME, "rows": NAME, "base": NAME, "of": "numpy" | "torch"}   in version 3: the
                          array of the base (_delta.py) with these rows in place of its own;
                          with "size": N it has N rows, and those that the base lacks are here

Parts of the state may have files of their own, in version 4: _files.py.

Tensors and variables of TensorFlow and Keras are saved as numpy arrays, and come back as
such. An array that is in the state twice is one array twice after a restore as well.
"""

from __future__ import annotations

import base64
import functools
import importlib
import math
import sys
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from . import _files, _pickled
from ._durable import no_room, room
from ._errors import CheckpointError

FORMAT = "headrace-python-state"
VERSION = 1
PICKLES = 2  # the version of a state with objects in files of their own
DELTAS = 3  # of one that holds only some rows of its tables
FILES = 4  # of one in which some parts have files of their own (_files.py)
VERSIONS = (VERSION, PICKLES, DELTAS, FILES)

_EXACT = 1 << 53  # beyond it readers that take numbers for floats would round
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_DTYPES = ("bool", *_INTEGERS, "float16", "float32", "float64")
_FLOAT8 = ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu")
_TENSORS = (*_DTYPES, "bfloat16", "complex64", *_FLOAT8, "float4_e2m1fn_x2")


class Base(NamedTuple):
    """The checkpoint that a delta is based on."""

    cut: str
    folder: str  # its name


class Captured(NamedTuple):
    """A state, copied: nothing that the trainer does later changes it."""

    tree: dict[str, Any]
    arrays: dict[str, Any]  # all numpy, or all torch
    torch: bool
    pickles: dict[str, bytes] = {}  # by place  # noqa: RUF012
    tables: dict[str, str] = {}  # what tables= named, by place: the array's name  # noqa: RUF012
    base: Base | None = None  # None: it is whole
    own: frozenset[str] = frozenset()  # places that have files of their own

    @property
    def size(self) -> int:
        """Bytes of the arrays."""
        return sum(int(a.nbytes) for a in self.arrays.values())


class Rows(NamedTuple):
    """Some rows of a table."""

    base: str  # the table's name in the base
    rows: np.ndarray[Any, Any]
    size: int | None  # how many the table has, if it has more than in the base


# Of a table: the rows to save; None: all of it.
Changed = Callable[[Any], Rows | None]


def capture(
    state: Any,
    pickles: frozenset[str] = frozenset(),
    tables: dict[str, Changed] | None = None,
    copy: bool = True,
    own: frozenset[str] = frozenset(),
) -> Captured:
    """Copies a state. Objects at the places `pickles` are pickled, and of the arrays at the
    places `tables` only some rows are copied. Raises TypeError that names the place of a
    value that cannot be saved, or a place that is not in the state. copy=False: arrays that
    are whole stay where they lie. own: places that have files of their own."""
    walk = _Capture(copy, pickles, tables or {}, own)
    tree = walk.node(state, "", frozenset())
    options = (("pickle", pickles, walk.pickles), ("deltas", tables or {}, walk.tables), ("files", own, walk.met))
    for option, asked, there in options:
        if missing := sorted(set(asked) - set(there)):
            raise TypeError(f"{option}= names {', '.join(map(repr, missing))}, which is not in the state")
    if walk.tensors and walk.arrays:
        # One file holds both; torch has every dtype that numpy has here, but for unsigned ones.
        for name, array in walk.arrays.items():
            try:
                walk.tensors[name] = _torch().from_numpy(_plain(array))
            except TypeError:
                raise TypeError(
                    f"state{name!r}: torch has no {array.dtype}; beside tensors save another type"
                ) from None
        return Captured(tree, walk.tensors, True, walk.pickles, walk.tables, own=own)
    arrays = walk.tensors or walk.arrays
    return Captured(tree, arrays, bool(walk.tensors), walk.pickles, walk.tables, own=own)


def flatten(state: Any, own: frozenset[str] = frozenset()) -> Captured:
    """The arrays of a state where they lie: nothing is copied. Raises as capture()."""
    return capture(state, copy=False, own=own)


def write(arrays: dict[str, Any], path: str, metadata: dict[str, str]) -> None:
    """Writes arrays as a safetensors file; it is not synced. Raises CheckpointError:
    the library's own errors (a full disk) do not say which file."""
    size = sum(int(a.nbytes) for a in arrays.values())
    uses_torch = any(map(_is_tensor, arrays.values()))
    if uses_torch:  # one file holds both kinds
        arrays = {n: a if _is_tensor(a) else _torch().from_numpy(_plain(a)) for n, a in arrays.items()}
    library = importlib.import_module("safetensors.torch" if uses_torch else "safetensors.numpy")
    try:
        with room(path, size):
            library.save_file(arrays, path, metadata=metadata)
    except importlib.import_module("safetensors").SafetensorError as error:
        raise CheckpointError(no_room(path, size, str(error))) from error


def read(
    tree: dict[str, Any],
    files: Iterable[tuple[str, str]],
    pickles: dict[str, _pickled.Pickled] | None = None,
    base: Callable[[str, str], Any] | None = None,
) -> Any:
    """The state that write() wrote. files: each with the prefix that the names of its arrays lack.
    pickles: what is in files of their own, by place. base: gives an array of a delta's base.
    Raises CheckpointError."""
    uses_torch = _mentions_torch(tree)
    if uses_torch:
        try:
            _torch()
        except ImportError:
            raise CheckpointError("the checkpoint holds torch tensors: install torch to restore it") from None
    arrays: dict[str, Any] = {}
    for path, prefix in files:
        library = importlib.import_module("safetensors.torch" if uses_torch else "safetensors.numpy")
        arrays.update((prefix + name, array) for name, array in library.load_file(path).items())
    return _build(tree, _Source(arrays, pickles or {}, base))


def build(tree: dict[str, Any], arrays: dict[str, Any]) -> Any:
    """The state of a tree and its arrays. Raises CheckpointError."""
    return _build(tree, _Source(arrays, {}, None))


def rows_of(value: Any, rows: np.ndarray[Any, Any]) -> Any:
    """A copy of some rows of an array or a tensor, in this machine's memory."""
    if _is_tensor(value):
        value = value.detach()
        return value[_torch().from_numpy(rows).to(value.device)].to("cpu")
    return value[rows]


class _Capture:
    def __init__(self, copy: bool, names: frozenset[str], tables: dict[str, Changed], own: frozenset[str]) -> None:
        self._copy = copy
        self._own = own
        self.met: set[str] = set()  # places of own
        self._names = names
        self._tables = tables
        self._options = bool(names or tables or own)
        self.tables: dict[str, str] = {}  # those that were met, by place
        self.pickles: dict[str, bytes] = {}
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.tensors: dict[str, Any] = {}
        self._known: dict[tuple[Any, ...], str] = {}  # what an array is of -> its name
        self._alive: list[Any] = []

    def node(self, value: Any, at: str, inside: frozenset[int]) -> dict[str, Any]:
        if self._options:
            named = self._named(value, at)
            if named is not None:
                return named
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

    def _named(self, value: Any, at: str) -> dict[str, Any] | None:
        """The node of a place that an option names. None: it is like any other."""
        if at in self.pickles or at in self.tables:
            raise TypeError(f"{_place(at)} is there twice, by keys as 'a.b' and 'a', 'b': an option names one place")
        if at in self._names:
            self.pickles[at] = _pickled.dumps(value, at)
            return {"pickle": at}
        if at in self._tables:
            return self._table(value, at)
        if at in self._own:
            if not isinstance(value, (dict, list, tuple)):
                kind = type(value).__qualname__
                raise TypeError(f"{_place(at)} is a {kind}: files= names dicts and lists, as a state_dict() is one")
            self.met.add(at)
        return None

    def _container(self, value: Any, at: str, inside: frozenset[int]) -> dict[str, Any]:
        if id(value) in inside:
            raise TypeError(f"{_place(at)} contains itself")
        inside |= {id(value)}
        if isinstance(value, dict):
            return {"dict": [[_key(k, at), self.node(v, _files.join(at, k), inside)] for k, v in value.items()]}
        if isinstance(value, tuple) and type(value) is not tuple:
            raise TypeError(f"{_place(at)} is a {type(value).__name__}: save it as a dict or a plain tuple")
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [self.node(v, _files.join(at, i), inside) for i, v in enumerate(value)]}

    def _table(self, value: Any, at: str) -> dict[str, Any]:
        is_tensor = _is_tensor(value)
        if not (is_tensor or isinstance(value, np.ndarray)) or value.ndim == 0:
            raise TypeError(f"{_place(at)} is a {type(value).__qualname__}: deltas= names arrays and tensors with rows")
        of = "torch" if is_tensor else "numpy"
        changed = self._tables[at](value)
        if changed is None:
            name = self.tables[at] = self._tensor(value, at) if is_tensor else self._array(value, at)
            return {"array": name, "of": of}
        name = self.tables[at] = self._free(at)
        (self.tensors if is_tensor else self.arrays)[name] = rows_of(value, changed.rows)
        index = self._free(f"{at}.rows")
        self.arrays[index] = changed.rows
        size = {} if changed.size is None else {"size": changed.size}
        return {"delta": name, "rows": index, "base": changed.base, "of": of, **size}

    def _array(self, value: np.ndarray[Any, Any], at: str) -> str:
        if isinstance(value, np.ma.MaskedArray):
            raise TypeError(f"{_place(at)} is a masked array: save its .data and its .mask")
        if dtype_name(value.dtype) not in _DTYPES:
            raise TypeError(f"{_place(at)} is an array of {value.dtype}: save one of {', '.join(_DTYPES)}")
        key = (value.__array_interface__["data"][0], value.shape, value.strides, value.dtype)
        name, new = self._name(key, at, value, value.size)
        if new:
            self.arrays[name] = np.array(value, order="C") if self._copy else value
        return name

    def _tensor(self, value: Any, at: str) -> str:
        if value.layout is not _torch().strided or value.is_quantized:
            raise TypeError(f"{_place(at)} is a {value.layout} tensor: save a dense one")
        if "DTensor" in type(value).__name__:
            raise TypeError(f"{_place(at)} is a DTensor: save with headrace.torch.distributed.save()")
        if dtype_name(value.dtype) not in _TENSORS:
            raise TypeError(f"{_place(at)} is a tensor of {value.dtype}: save one of {', '.join(_TENSORS)}")
        if value.is_meta:
            raise TypeError(f"{_place(at)} is on the meta device, where a tensor has no values: move it first")
        value = value.detach()
        if value.is_conj() or value.is_neg():  # a view that has another tensor's memory, and other values
            value = value.resolve_conj().resolve_neg()
        key = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.device)
        name, new = self._name(key, at, value, value.numel())
        if new:
            self.tensors[name] = value.to("cpu", copy=True).contiguous() if self._copy else value
        return name

    def _name(self, key: tuple[Any, ...], at: str, value: Any, size: int) -> tuple[str, bool]:
        """The name of an array, and whether it is the first with that key. size: elements."""
        if size == 0:
            key = (id(value),)  # empty ones share addresses with anything
        if self._own:  # what is in two files is in each of them
            key = (_files.place_of(at, self._own), *key)
        known = self._known.get(key)
        if known is not None:
            return known, False
        name = self._free(at or "state")
        self._alive.append(value)  # so that no address is used again meanwhile
        self._known[key] = name
        return name, True

    def _free(self, name: str) -> str:
        while name in self.arrays or name in self.tensors or name == "__metadata__":
            name += "_"  # {"a": {"b": x}, "a.b": y}
        return name


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The array as torch takes it: in this machine's byte order, and not backwards."""
    return np.asarray(array, array.dtype.newbyteorder("="), order="C" if min(array.strides, default=0) < 0 else "K")


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


def _place(at: str) -> str:
    return f"state {at!r}" if at else "the state"


class _Source(NamedTuple):
    arrays: dict[str, Any]
    pickles: dict[str, _pickled.Pickled]
    base: Callable[[str, str], Any] | None

    def patched(self, node: dict[str, Any]) -> Any:
        """The array of the base with a delta's rows."""
        if self.base is None:
            raise LookupError("it is a delta, and names no base")
        of = node["of"]
        array, rows, values = self.base(node["base"], of), self.arrays[node["rows"]], self.arrays[node["delta"]]
        if "size" in node:  # it has grown
            shape = (node["size"], *array.shape[1:])
            larger = array.new_empty(shape) if of == "torch" else np.empty(shape, array.dtype)
            larger[: len(array)] = array
            array = larger
        if of == "torch":
            array[rows] = values
        else:
            array[np.asarray(rows)] = np.asarray(values)
        return array


def _build(node: Any, source: _Source) -> Any:
    try:
        return _built(node, source)
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"the checkpoint's tree of the state does not hold together: {error!r}") from None


def _built(node: dict[str, Any], source: _Source) -> Any:
    if "delta" in node:
        return source.patched(node)
    ((kind, value),) = ((k, v) for k, v in node.items() if k != "of")
    if kind == "array":
        array, of = source.arrays[value], node["of"]
        if of == "torch" or isinstance(array, np.ndarray):
            return array[()] if of == "scalar" else array
        return array.numpy()[()] if of == "scalar" else array.numpy()
    if kind == "dict":
        return {(k if isinstance(k, str) else int(k["int"])): _built(v, source) for k, v in value}
    if kind == "list":
        return [_built(v, source) for v in value]
    if kind == "tuple":
        return tuple(_built(v, source) for v in value)
    if kind == "pickle":
        return source.pickles[value]
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
