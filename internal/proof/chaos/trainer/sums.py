"""The model: for each dataset the sum of its records' hashes (of key and payload) mod 2^64, and their
number. It also counts how often it has seen each record, so that a wrong sum can be traced to a
record. model.go computes the same from the generator."""

import json
import struct

import numpy as np

from .journal import cfg


class Model:
    def __init__(self):
        self.sums = np.zeros(2 * len(cfg["sizes"]), np.uint64)
        self.bases = np.cumsum([0] + [records * passes for records, passes in cfg["sizes"]])
        self.seen = np.zeros(self.bases[-1], np.uint8)

    def state(self):
        return {"sums": self.sums, "seen": self.seen}

    def load(self, state):
        self.sums, self.seen = state["sums"].copy(), state["seen"].copy()

    def add(self, keys, checks):
        """Adds records of one dataset."""
        if len(keys) == 0:
            return
        dataset = int(keys[0] >> 56)
        self.sums[2 * dataset] += record_hash(keys, checks).sum(dtype=np.uint64)
        self.sums[2 * dataset + 1] += np.uint64(len(keys))
        self.count(keys)

    def count(self, keys):
        """Only counts how often each record was seen, of any dataset."""
        datasets = keys >> 56
        sizes = np.array([records for records, _ in cfg["sizes"]])
        place = (keys & ((1 << 40) - 1)) + (keys >> 40 & 0xFFFF) * sizes[datasets] + self.bases[datasets]
        np.add.at(self.seen, place, 1)


def record_hash(keys, checks):
    z = keys.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    z ^= checks.astype(np.uint64) * np.uint64(0x94D049BB133111EB)
    return (z ^ (z >> np.uint64(32))) * np.uint64(0x9E3779B97F4A7C15)


def mix(ids):
    """The check value that each record carries beside its id."""
    z = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((z ^ (z >> np.uint64(29))) >> np.uint64(1)).astype(np.int64)


def content(batch, slot):
    """The keys and the payload of a batch's records."""
    if slot["lines"]:
        pairs = [row.split(b";") for row in batch["value"]]
        ids, checks = (np.array([int(p[k]) for p in pairs], np.int64) for k in (0, 1))
    else:
        ids, checks = batch["id"], batch["check"]
    passes = batch.positions()["pass"].astype(np.int64)
    return ids | passes << 40 | np.int64(slot["number"]) << 56, checks


# A checkpoint file of our own, as frameworks have one: safetensors, with a text in its metadata.


def to_bytes(state, text=""):
    a, b = state["sums"].tobytes(), state["seen"].tobytes()
    head = {
        "__metadata__": {"text": text},
        "sums": {"dtype": "U64", "shape": [len(state["sums"])], "data_offsets": [0, len(a)]},
        "seen": {"dtype": "U8", "shape": [len(b)], "data_offsets": [len(a), len(a) + len(b)]},
    }
    packed = json.dumps(head).encode()
    return struct.pack("<Q", len(packed)) + packed + a + b


def from_bytes(data):
    (n,) = struct.unpack("<Q", data[:8])
    head, body = json.loads(data[8 : 8 + n]), data[8 + n :]
    a, b = head["sums"]["data_offsets"], head["seen"]["data_offsets"]
    state = {"sums": np.frombuffer(body[a[0] : a[1]], np.uint64), "seen": np.frombuffer(body[b[0] : b[1]], np.uint8)}
    return state, head["__metadata__"]["text"]
