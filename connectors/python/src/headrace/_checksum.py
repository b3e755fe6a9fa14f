"""CRC-64/NVME of large memory, by some threads.

Each thread computes the checksum of a part, and combined() joins them. It multiplies
polynomials modulo the CRC's own, as zlib's crc32_combine() does: to append n bytes to a
message is to multiply its checksum by x to the power of 8n.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import _copying
from ._manifest import crc64

POLYNOMIAL = 0x9A6C9329AC4BC9B5  # reflected, as https://reveng.sourceforge.io/crc-catalogue/ has it
CHUNK = 4 << 20
_ONE = 1 << 63  # the polynomial 1


class Stopped(Exception):
    """Nobody wants the checksum any more."""


def of(memory: Any, begin: int, end: int, threads: int = 1, stop: Callable[[], bool] = lambda: False) -> int:
    """The checksum of memory[begin:end]. stop is asked between two chunks. Raises Stopped."""
    size = end - begin
    share = max(CHUNK, -(-size // max(1, threads)))
    parts = [(at, min(at + share, end)) for at in range(begin, end, share)]
    sums = [0] * len(parts)
    with memoryview(memory) as view:

        def part(number: int) -> None:
            crc, last = 0, parts[number][1]
            for at in range(parts[number][0], last, CHUNK):
                if stop():
                    raise Stopped
                with view[at : min(at + CHUNK, last)] as chunk:
                    crc = crc64(chunk, crc)
            sums[number] = crc

        _copying.each(list(range(len(parts))), part, threads)
    crc = 0
    for (first, last), one in zip(parts, sums):
        crc = combined(crc, one, last - first)
    return crc


def combined(first: int, second: int, size: int) -> int:
    """The checksum of two messages in a row, from theirs. size: bytes of the second."""
    return _times(_power(8 * size), first) ^ second


def _times(a: int, b: int) -> int:
    product, bit = 0, _ONE
    while a:
        if a & bit:
            product ^= b
            a ^= bit
        bit >>= 1
        b = b >> 1 ^ POLYNOMIAL if b & 1 else b >> 1
    return product


def _power(n: int) -> int:
    """x to the power of n."""
    result, square = _ONE, _ONE >> 1
    while n:
        if n & 1:
            result = _times(square, result)
        square = _times(square, square)
        n >>= 1
    return result
