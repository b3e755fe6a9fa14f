"""A pusher sends records in the form that the master reads. The vectors are in api/vectors."""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from headrace._chunk import Builder, first_of, key_of, partition_of
from headrace._master import Master, Target
from headrace._push import Pusher, Transaction, _bytes_of, _Told

VECTORS = json.loads((Path(__file__).parents[3] / "api" / "vectors" / "landing.json").read_text())


def unhex(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def raw_of(chunk: bytes) -> bytes:
    return zlib.decompress(chunk[28:]) if chunk[4] else chunk[28:]


@pytest.mark.parametrize("vector", VECTORS["keys"], ids=lambda v: str(bytes.fromhex(v["record_hex"])))
def test_a_record_has_the_key_and_the_partition_that_the_master_sees(vector: dict[str, Any]) -> None:
    record = bytes.fromhex(vector["record_hex"])
    if vector.get("error"):
        with pytest.raises(ValueError, match=f"its key {vector['pointer']}: "):
            key_of(vector["pointer"], record)
        return
    key = key_of(vector["pointer"], record)
    assert key == unhex(vector["key_hex"])
    assert partition_of(key, 7, 3) == vector["partition_of_7"]


@pytest.mark.parametrize("vector", VECTORS["records"], ids=range(len(VECTORS["records"])))
def test_a_record_is_the_bytes_that_the_master_reads(vector: dict[str, Any]) -> None:
    b = Builder()
    headers = [(bytes.fromhex(n).decode(), bytes.fromhex(v)) for n, v in vector["headers_hex"]]
    b.add(unhex(vector["key_hex"]), unhex(vector["value_hex"]), vector["time"], headers)
    assert raw_of(b.seal()).hex() == vector["raw_hex"]


@pytest.mark.parametrize("vector", VECTORS["firsts"], ids=lambda v: v["id"])
def test_records_without_a_key_begin_where_the_transactions_id_says(vector: dict[str, Any]) -> None:
    assert first_of(vector["id"]) == vector["first"]


def test_records_without_key_and_time_have_the_same_form_and_keep_their_place_among_the_others() -> None:
    values = [b"v" * n for n in (0, 1, 127, 128, 5, 127, 16_383, 16_384, 2_097_152)]
    short, long = Builder(), Builder()
    for i, value in enumerate(values):
        short.plain(value)
        long.add(None, value, 0, [])
        if i % 3 == 1:
            for b in short, long:
                b.add(b"k", value, 1_700_000_000_000, [("h", b"x")])
        assert short.size >= long.size
    assert short.records == long.records == len(values) + 3
    assert short.seal() == long.seal()
    assert short.seal() == Builder().seal()


@pytest.mark.parametrize(("value", "codec"), [(b"x" * 1000, 2), (bytes(range(64)), 0)])
def test_a_chunk_is_compressed_where_that_makes_it_smaller(value: bytes, codec: int) -> None:
    b = Builder()
    b.add(None, value, 0, [])
    chunk = b.seal()
    assert (b.records, b.size, chunk[:4], chunk[4]) == (0, 0, b"HRC1", codec)
    assert int.from_bytes(chunk[24:28], "little") == zlib.crc32(chunk[:24])
    assert raw_of(chunk).endswith(value)


def test_a_chunk_for_a_master_on_this_machine_is_not_compressed() -> None:
    b = Builder()
    b.plain(b"x" * 1000)
    chunk = b.seal(compress=False)
    assert (chunk[4], raw_of(chunk)[-1000:]) == (0, b"x" * 1000)


@pytest.mark.parametrize(("address", "near"), [("127.0.0.1:1", True), ("[::1]:1", True), ("10.1.2.3:1", False)])
def test_a_master_is_near_on_loopback_only(address: str, near: bool) -> None:
    assert Master(Target(address, "/nowhere")).near() is near


def test_values_become_bytes() -> None:
    import numpy as np

    row = {"a": np.int64(1), "b": np.float32(0.5), "c": np.array([1, 2]), "d": "ä", "e": [None, True]}
    assert _bytes_of(row) == '{"a":1,"b":0.5,"c":[1,2],"d":"ä","e":[null,true]}'.encode()
    assert _bytes_of(bytearray(b"x")) == _bytes_of(memoryview(b"x")) == _bytes_of("x") == b"x"
    assert _bytes_of(None) is None


@pytest.mark.parametrize(
    ("key", "time", "headers"),
    [(7, 0, []), ("k", 1.5, []), ("k", 1 << 64, []), ("k", 5, [("h", "text")]), ("k", 5, [("h", b"x"), (b"h", b"x")])],
)
def test_a_record_that_push_refuses_is_named_and_leaves_nothing_in_its_transaction(
    key: Any, time: Any, headers: Any
) -> None:
    begun, other = transaction(), transaction()
    for t in begun, other:
        t.push("first", key="k")
    with pytest.raises((TypeError, ValueError), match="record 1 of transaction 't'"):
        begun.push("second", key=key, time=time, headers=headers)
    for t in begun, other:
        t.push("third", key="k", time=5)
    assert begun.records == other.records == 2
    assert begun._builders[0].seal() == other._builders[0].seal()


@pytest.mark.parametrize(
    "record", [{"value": "\ud800"}, {"value": {"a": "\ud800"}}, {"value": b"x", "key": "\ud800"},
               {"value": b"x", "headers": [("\ud800", b"x")]}],
)  # fmt: skip
def test_text_that_is_not_unicode_is_named_by_the_number_of_its_record(record: dict[str, Any]) -> None:
    begun = transaction()
    begun.push("first")
    with pytest.raises(ValueError, match=r"record 1 of transaction 't': 'utf-8' codec can't encode.*surrogates"):
        begun.push(**record)
    assert begun.records == 1


@pytest.mark.parametrize("add", [lambda b: b.plain(b"x"), lambda b: b.add(b"k", b"x", 5, [("h", b"y")])])
def test_a_record_whose_push_is_interrupted_is_added_as_a_whole_or_not_at_all(add: Callable[[Builder], None]) -> None:
    n, added = 0, {False: 0, True: 0}
    while True:
        n += 1
        left, b = n, Builder()
        b.plain(b"first")

        def profile(frame: FrameType, event: str, _: Any) -> None:
            nonlocal left
            if event == "c_return" and Path(frame.f_code.co_filename).name == "_chunk.py":
                left -= 1
                if left == 0:  # there CPython runs signal handlers
                    raise KeyboardInterrupt

        try:
            sys.setprofile(profile)
            add(b)
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        records, want = b.records, Builder()
        want.plain(b"first")
        if records == 2:
            add(want)
        added[records == 2] += 1
        assert b.size == want.size
        assert b.seal() == want.seal()
    assert n > 1


def transaction() -> Transaction:
    """One of a dataset with one partition, which sends nothing."""
    pusher = Pusher.__new__(Pusher)
    pusher.dataset, pusher._path = "clicks", ""
    pusher._told = _Told(1, 1 << 20, 1 << 20, 1000, 0, "", None, True)
    return Transaction(pusher, "t")
