"""The order of a shuffled pass is a permutation, the same in Python and in the agent."""

from __future__ import annotations

import json
import random
from pathlib import Path

import headrace
import numpy as np
import pytest

VECTORS = Path(__file__).parents[3] / "api" / "vectors" / "shuffle.json"


def test_vectors() -> None:
    vectors = json.loads(VECTORS.read_text())
    assert len(vectors["permutations"]) > 50
    for v in vectors["permutations"]:
        n = int(v["blocks"])
        assert headrace.permutation(np.arange(n), n, int(v["seed"]), int(v["pass"])).tolist() == v["order"]
    for v in vectors["spots"]:
        for index, block in v["spots"]:
            assert headrace.permutation(int(index), int(v["blocks"]), int(v["seed"]), int(v["pass"])) == int(block)
    for v in vectors["splitmix64"]:
        assert splitmix(int(v["in"])) == int(v["out"])


def splitmix(z: int) -> int:
    m = (1 << 64) - 1
    z = (z + 0x9E3779B97F4A7C15) & m
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & m
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & m
    return z ^ z >> 31


def by_the_book(x: int, n: int, seed: int, pass_: int) -> int:
    """The permutation, line by line as docs/PROTOCOL.md, Shuffle, describes it."""
    m = (1 << 64) - 1
    w = 2
    while 1 << w < n:
        w += 2
    h = w // 2
    key = splitmix((seed + 0x9E3779B97F4A7C15 * (pass_ + 1)) & m)
    while True:
        left, right = x >> h, x & ((1 << h) - 1)
        for r in range(4):
            left, right = right, left ^ (splitmix((key + r * 0xD1B54A32D192ED03 + right) & m) & ((1 << h) - 1))
        x = (left << h) | right
        if x < n:
            return x


def test_it_is_the_written_permutation(rng: random.Random) -> None:
    for n in [1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 1000]:
        seed, pass_ = rng.getrandbits(64), rng.randrange(5)
        order = headrace.permutation(np.arange(n), n, seed, pass_)
        assert sorted(order.tolist()) == list(range(n))
        assert order.tolist() == [by_the_book(i, n, seed, pass_) for i in range(n)]
        assert headrace.permutation(n - 1, n, seed, pass_) == order[-1]


def test_large_orders_and_shapes(rng: random.Random) -> None:
    n = (1 << 40) + 12345
    index = np.array([[rng.randrange(n) for _ in range(5)] for _ in range(4)])
    got = headrace.permutation(index, n, 42)
    assert got.shape == (4, 5)
    assert got.ravel().tolist() == [by_the_book(i, n, 42, 0) for i in index.ravel().tolist()]


def test_passes_and_seeds_differ() -> None:
    orders = {tuple(headrace.permutation(np.arange(100), 100, s, p).tolist()) for s in range(3) for p in range(3)}
    assert len(orders) == 9


def test_an_index_outside_is_refused() -> None:
    for index, blocks in ((5, 5), (-1, 5), (0, 0)):
        with pytest.raises(ValueError, match=r"index|blocks"):
            headrace.permutation(index, blocks, 1)
