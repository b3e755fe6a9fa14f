"""The form of pushed records (docs/LANDING.md, "The form of a chunk")."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterable
from itertools import chain
from typing import NoReturn

_HEADER = struct.Struct("<4sB3xIIII")  # magic, codec, records, raw, body, sum of the body
_NONE, _ZLIB = 0, 2
_KEY, _NULL, _TIME, _HEADERS = 1, 2, 4, 8
_MOST_BEFORE = 6  # bytes before the value of a plain record: flags, and its length
_LEVEL = 1  # of zlib: the network is faster than a better one

Header = tuple[str, bytes]


class Builder:
    """Gathers the records of one chunk."""

    def __init__(self) -> None:
        self.size = 0  #: bytes of the records at most: a plain record may take a few less
        self.records = 0
        self._raw = bytearray()
        self._plain: list[bytes] = []  # values without anything else, which follow the records in raw

    def plain(self, value: bytes) -> None:
        """Adds a record that has only a value. It is put into its form when all of them are."""
        size = self.size + len(value) + _MOST_BEFORE
        # All or nothing: CPython runs signal handlers after a call, and the append is the first one here.
        self.size, self.records = size, self.records + 1
        self._plain.append(value)

    def add(self, key: bytes | None, value: bytes | None, time: int, headers: Iterable[Header]) -> None:
        """Adds a record. If it raises, nothing was added."""
        raw, flags = bytearray(1), 0
        if key is not None:
            flags |= _KEY
            _put(raw, key)
        if time:
            flags |= _TIME
            _uvarint(raw, time << 1 if time >= 0 else (-time << 1) - 1)  # zigzag
        fields = [(name.encode(), text) for name, text in headers]
        if fields:
            flags |= _HEADERS
            _uvarint(raw, len(fields))
            for name, text in fields:
                _put(raw, name)
                _put(raw, text)
        if value is None:
            flags |= _NULL
        else:
            _put(raw, value)
        raw[0] = flags
        size = self.size + len(raw)
        self._form()
        self._raw += raw  # there is no call from here on, so no signal handler runs
        self.size, self.records = size, self.records + 1

    def _form(self) -> None:
        self._raw += self._formed()
        self._plain.clear()

    def _formed(self) -> bytes:
        """The plain values in the form of records: no flags, the length, the value."""
        lengths = list(map(len, self._plain))
        before = {n: bytes(_uvarint(bytearray(1), n)) for n in set(lengths)}
        return b"".join(chain.from_iterable(zip(map(before.__getitem__, lengths), self._plain)))

    def seal(self, compress: bool = True) -> bytes:
        """The chunk of what was added. The builder is empty then."""
        head, body = self.parts(compress)
        self._raw, self._plain, self.records, self.size = bytearray(), [], 0, 0
        return head + body

    def parts(self, compress: bool = True) -> tuple[bytes, bytes]:
        """The header of the chunk, and its body.

        Without compress it stays as it is: the master compresses it before it stores it."""
        raw, records = self._raw + self._formed(), self.records
        body, codec = bytes(raw), _NONE
        if compress:
            packed = zlib.compress(raw, _LEVEL)
            if len(packed) < len(raw):
                body, codec = packed, _ZLIB
        head = _HEADER.pack(b"HRC1", codec, records, len(raw), len(body), zlib.crc32(body))
        return head + struct.pack("<I", zlib.crc32(head)), body


def first_of(transaction: str) -> int:
    """The `rest` of partition_of() for the first chunk of a transaction. It differs between
    transactions: otherwise all transactions smaller than a chunk would go to partition 0."""
    return zlib.crc32(transaction.encode()) & 0x7FFFFFFF


def partition_of(key: bytes | None, partitions: int, rest: int) -> int:
    """Where a record goes; rest is for those without a key."""
    return (rest if key is None else zlib.crc32(key)) % partitions


def _uvarint(out: bytearray, n: int) -> bytearray:
    while n > 0x7F:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return out


def _put(out: bytearray, data: bytes) -> None:
    _uvarint(out, len(data))
    out += data


# Keys. The text of a value is its key: a number is never read and written again.

_SPACE = re.compile(r"[ \t\r\n]*")
_INDEX = re.compile(r"[+-]?[0-9]+")
_LONE = re.compile("[\ud800-\udfff]")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_int=str, parse_float=str)


def key_of(pointer: str, record: bytes) -> bytes | None:
    """The key of a JSON record. The key of a string is its bytes; that of any other value is
    its JSON. A record without the value has no key. Raises ValueError."""
    text = record.decode("utf-8", "surrogateescape")
    try:
        at = _skip(text, 0)
        end = _end(text, at)
        if _skip(text, end) < len(text):
            raise ValueError(f"there is more after the value, at character {end}")
        for token in pointer[1:].split("/"):
            found = _member(text, at, token.replace("~1", "/").replace("~0", "~"))
            if found is None:
                return None
            at, end = found
        if text[at] == '"':
            return _LONE.sub("\ufffd", _DECODER.raw_decode(text, at)[0]).encode()
    except (ValueError, RecursionError) as error:
        raise ValueError(f"its key {pointer}: {error}") from None
    value = text[at:end]
    return None if value == "null" else value.encode("utf-8", "surrogateescape")


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _end(text: str, at: int) -> int:
    return _DECODER.raw_decode(text, at)[1]


def _member(text: str, at: int, token: str) -> tuple[int, int] | None:
    """Where a member of the value at `at` lies; the value was parsed before. Of two members
    of one name the last counts."""
    if text.startswith("null", at):
        return None
    opening = text[at]
    if opening not in "{[":
        raise ValueError(f"{text[at : at + 20]} has no members")
    index = int(token) if opening == "[" and _INDEX.fullmatch(token) else -1
    found, count = None, 0
    at = _skip(text, at + 1)
    while text[at] not in "}]":
        name = None
        if opening == "{":
            name, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)  # over the colon
        end = _end(text, at)
        if name == token if opening == "{" else count == index:
            found = at, end
        count += 1
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return found
