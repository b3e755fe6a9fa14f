"""hash64: the hash of `hash: {buckets, salt}`, so that serving hashes as training did.

XXH64 (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md) with seed
0 over salt + byte 0x1F + value. Vectors: api/vectors/hash64.json.
"""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from ._columns import Bytes

_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_M64 = (1 << 64) - 1
_SEPARATOR = b"\x1f"

Text = str | bytes


@overload
def hash64(value: Text, salt: Text = ..., buckets: int = ...) -> int: ...
@overload
def hash64(
    value: NDArray[Any] | Bytes | list[Text] | tuple[Text, ...], salt: Text = ..., buckets: int = ...
) -> NDArray[np.int64]: ...
def hash64(value: Any, salt: Text = "", buckets: int = 0) -> int | NDArray[np.int64]:
    """The number that a column with ``hash: {buckets, salt}`` holds for value.

    value is a ``str`` (UTF-8) or ``bytes``, or an array, list or `Bytes` column
    of them; an array gives int64 of the same shape. With buckets > 0 the result
    lies in [0, buckets), else it is the 64 bits as a signed integer.
    """
    if not 0 <= buckets < 1 << 63:
        raise ValueError(f"buckets is {buckets}; it must lie in 0..2**63-1")
    prefix = _encoded(salt) + _SEPARATOR
    if isinstance(value, (str, bytes)):
        h = _one(prefix + _encoded(value))
        if buckets:
            return h % buckets
        return h - (1 << 64) if h >> 63 else h
    shape, encoded = _strings(value)
    hashes = _many(prefix, encoded)
    if buckets:
        hashes %= np.uint64(buckets)
    return hashes.view(np.int64).reshape(shape)


def _encoded(value: Text) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return value
    raise TypeError(f"hash64 takes str or bytes, not {type(value).__name__}: a number has no one spelling")


def _strings(value: Any) -> tuple[tuple[int, ...], list[bytes]]:
    if isinstance(value, Bytes):
        data, at = value.data.tobytes(), value.offsets.tolist()
        return (len(value),), [data[a:b] for a, b in zip(at, at[1:])]
    array = value if isinstance(value, np.ndarray) else np.array(value, dtype=object)
    if array.dtype.kind not in "OUS":
        raise TypeError(f"hash64 takes an array of str or bytes, not of {array.dtype}")
    return array.shape, [_encoded(v) for v in array.ravel().tolist()]


def _rotate(x: int, r: int) -> int:
    return ((x << r) | (x >> (64 - r))) & _M64


def _round(acc: int, lane: int) -> int:
    return _rotate((acc + lane * _P2) & _M64, 31) * _P1 & _M64


def _one(data: bytes) -> int:
    size, at = len(data), 0
    if size >= 32:
        acc = [(_P1 + _P2) & _M64, _P2, 0, -_P1 & _M64]
        while at <= size - 32:
            for i in range(4):
                acc[i] = _round(acc[i], int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little"))
            at += 32
        h = sum(_rotate(a, r) for a, r in zip(acc, (1, 7, 12, 18))) & _M64
        for a in acc:
            h = ((h ^ _round(0, a)) * _P1 + _P4) & _M64
    else:
        h = _P5
    h = (h + size) & _M64
    while at + 8 <= size:
        h = (_rotate(h ^ _round(0, int.from_bytes(data[at : at + 8], "little")), 27) * _P1 + _P4) & _M64
        at += 8
    if at + 4 <= size:
        h = (_rotate(h ^ int.from_bytes(data[at : at + 4], "little") * _P1 & _M64, 23) * _P2 + _P3) & _M64
        at += 4
    for byte in data[at:]:
        h = _rotate(h ^ byte * _P5 & _M64, 11) * _P1 & _M64
    h = (h ^ h >> 33) * _P2 & _M64
    h = (h ^ h >> 29) * _P3 & _M64
    return h ^ h >> 32


def _many(prefix: bytes, values: list[bytes]) -> NDArray[np.uint64]:
    """The hashes of prefix + value, all values of one length at a time."""
    out: NDArray[np.uint64] = np.empty(len(values), np.uint64)
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    order = np.argsort(lengths, kind="stable")
    cuts = np.flatnonzero(np.diff(lengths[order])) + 1
    for group in np.split(order, cuts):
        if len(group):
            joined = b"".join([prefix + values[i] for i in group.tolist()])
            rows = np.frombuffer(joined, np.uint8).reshape(len(group), -1)
            out[group] = _columnwise(rows)
    return out


# The same steps on a column of hashes. Unsigned arrays wrap around silently;
# scalars would warn, so every constant is an array of one.
_U = {n: np.array([n], np.uint64) for n in (_P1, _P2, _P3, _P4, _P5)}


def _rotates(x: NDArray[np.uint64], r: int) -> NDArray[np.uint64]:
    out: NDArray[np.uint64] = (x << np.uint64(r)) | (x >> np.uint64(64 - r))
    return out


def _rounds(acc: NDArray[np.uint64], lane: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return _rotates(acc + lane * _U[_P2], 31) * _U[_P1]


def _columnwise(rows: NDArray[np.uint8]) -> NDArray[np.uint64]:
    count, size = rows.shape
    zero: NDArray[np.uint64] = np.zeros(count, np.uint64)

    def word(at: int, width: int) -> NDArray[np.uint64]:
        raw = np.ascontiguousarray(rows[:, at : at + width]).view(f"<u{width}")
        return raw[:, 0].astype(np.uint64)

    at = 0
    if size >= 32:
        acc = [zero + np.uint64(n & _M64) for n in (_P1 + _P2, _P2, 0, -_P1)]
        while at <= size - 32:
            acc = [_rounds(a, word(at + 8 * i, 8)) for i, a in enumerate(acc)]
            at += 32
        h = zero
        for a, r in zip(acc, (1, 7, 12, 18)):
            h = h + _rotates(a, r)
        for a in acc:
            h = (h ^ _rounds(zero, a)) * _U[_P1] + _U[_P4]
    else:
        h = zero + _U[_P5]
    h = h + np.array([size], np.uint64)
    while at + 8 <= size:
        h = _rotates(h ^ _rounds(zero, word(at, 8)), 27) * _U[_P1] + _U[_P4]
        at += 8
    if at + 4 <= size:
        h = _rotates(h ^ word(at, 4) * _U[_P1], 23) * _U[_P2] + _U[_P3]
        at += 4
    for i in range(at, size):
        h = _rotates(h ^ word(i, 1) * _U[_P5], 11) * _U[_P1]
    h = (h ^ (h >> np.uint64(33))) * _U[_P2]
    h = (h ^ (h >> np.uint64(29))) * _U[_P3]
    out: NDArray[np.uint64] = h ^ (h >> np.uint64(32))
    return out
