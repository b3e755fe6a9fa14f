"""hash64 is XXH64 of salt, 0x1F and the value, in Go and in Python."""

from __future__ import annotations

import json
import random
from pathlib import Path

import headrace
import numpy as np
import pytest
from headrace import _hash

VECTORS = Path(__file__).parents[3] / "api" / "vectors"


def test_vectors() -> None:
    vectors = json.loads((VECTORS / "hash64.json").read_text())
    assert len(vectors) > 100
    for v in vectors:
        assert headrace.hash64(v["value"], v["salt"], v["buckets"]) == v["hash"], v


def test_vectors_as_arrays() -> None:
    groups: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for v in json.loads((VECTORS / "hash64.json").read_text()):
        groups.setdefault((v["salt"], v["buckets"]), []).append((v["value"], v["hash"]))
    for (salt, buckets), pairs in groups.items():
        values, hashes = zip(*pairs)
        assert headrace.hash64(list(values), salt, buckets).tolist() == list(hashes)


@pytest.mark.parametrize(
    ("data", "h"),
    [(b"", 0xEF46DB3751D8E999), (b"a", 0xD24EC4F1A98C6E5B), (b"abc", 0x44BC2CF5AD770999)],
)
def test_published_xxh64_values(data: bytes, h: int) -> None:
    assert _hash._one(data) == h


def test_arrays_hash_as_their_elements(rng: random.Random) -> None:
    values = [rng.randbytes(rng.randrange(0, 100)) for _ in range(600)]
    for buckets in (0, 1, 1000, 1 << 62):
        got = headrace.hash64(values, b"salt", buckets)
        assert got.dtype == np.int64
        assert got.tolist() == [headrace.hash64(v, b"salt", buckets) for v in values]


def test_shapes_and_kinds_of_arrays() -> None:
    strings = np.array([["a", "bb"], ["ccc", ""]])
    want = [[headrace.hash64(v) for v in row] for row in strings.tolist()]
    for array in (strings, strings.astype("S"), strings.astype(object)):
        assert headrace.hash64(array).tolist() == want
    column = headrace.Bytes(np.frombuffer(b"abb", np.uint8), np.array([0, 1, 3, 3]), True)
    assert headrace.hash64(column).tolist() == [headrace.hash64(v) for v in ("a", "bb", "")]
    assert headrace.hash64([]).shape == (0,)


@pytest.mark.parametrize("value", [1, 1.5, None, [1, 2], np.arange(3)])
def test_numbers_are_refused_because_they_have_more_than_one_spelling(value: object) -> None:
    with pytest.raises(TypeError, match="str or bytes"):
        headrace.hash64(value)


def test_buckets_out_of_range_are_refused() -> None:
    for buckets in (-1, 1 << 63):
        with pytest.raises(ValueError, match="buckets"):
            headrace.hash64("a", buckets=buckets)
