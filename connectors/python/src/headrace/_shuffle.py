"""The order of a shuffled pass, for audits: docs/PROTOCOL.md, "Shuffle".

A cycle-walking 4-round balanced Feistel network. Vectors: api/vectors/shuffle.json.
"""

from __future__ import annotations

from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

_M64 = (1 << 64) - 1
_GOLDEN, _ROUND = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03


@overload
def permutation(index: int, blocks: int, seed: int, pass_: int = ...) -> int: ...
@overload
def permutation(index: NDArray[Any], blocks: int, seed: int, pass_: int = ...) -> NDArray[np.int64]: ...
def permutation(index: ArrayLike, blocks: int, seed: int, pass_: int = 0) -> int | NDArray[np.int64]:
    """Which block of the input is block ``index`` of the order.

    index is a number or an array of numbers in [0, blocks).
    """
    if blocks < 1:
        raise ValueError(f"blocks is {blocks}; there is no order of no blocks")
    given = np.atleast_1d(np.asarray(index))
    if given.size and (given.min() < 0 or given.max() >= blocks):
        raise ValueError(f"index must lie in 0..{blocks - 1}")
    half = max(2, (blocks - 1).bit_length() + 1) // 2
    mask = np.uint64((1 << half) - 1)
    key = int(_splitmix(np.array([(seed + _GOLDEN * (pass_ + 1)) & _M64], np.uint64))[0])
    keys = [np.array([(key + r * _ROUND) & _M64], np.uint64) for r in range(4)]

    x = given.astype(np.uint64).ravel()
    walking = np.arange(x.size)
    while walking.size:
        left, right = x[walking] >> np.uint64(half), x[walking] & mask
        for round_key in keys:
            left, right = right, left ^ (_splitmix(round_key + right) & mask)
        x[walking] = (left << np.uint64(half)) | right
        walking = walking[x[walking] >= np.uint64(blocks)]
    out = x.astype(np.int64)
    return int(out[0]) if np.ndim(index) == 0 else out.reshape(np.shape(index))


def _splitmix(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = z + np.uint64(_GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z
