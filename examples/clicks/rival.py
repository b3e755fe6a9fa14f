"""The common part of the trainers on other clients (train_group.py, train_pulsar.py,
train_rocketmq.py): the model, the pace and the journal of train.py, and decoding in
Python. So each of those files has only its client."""

from __future__ import annotations

import argparse
import os
import time
import zlib
from typing import NamedTuple

import numpy as np
from train import BUCKETS, CATEGORIES, INTEGERS, Journal, Pace, SharedModel


class Record(NamedTuple):
    partition: str  # its name in the report, for example clicks/3
    offset: int
    value: bytes


def arguments(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """Adds the arguments of every trainer of the demo, and reads the command line."""
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--model", required=True, help="file of the shared model")
    parser.add_argument("--rows", type=int, default=512, help="rows per batch, at most (default 512)")
    parser.add_argument("--rate", type=float, default=0, help="at most this many rows/s (default: no limit)")
    parser.add_argument("--journal", help="write down here what was done with each record")
    return parser.parse_args()


def decode(values: list[bytes]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of Criteo's TSV: dense (rows, 13), cat (rows, 26), label (rows,)."""
    rows = [value.split(b"\t") for value in values]
    label = np.array([row[0] == b"1" for row in rows], np.float32)
    dense = np.array([[float(x) if x else -1.0 for x in row[1 : 1 + INTEGERS]] for row in rows], np.float32)
    hashed = [[zlib.crc32(x) % BUCKETS for x in row[1 + INTEGERS :]] for row in rows]
    return dense, np.array(hashed, np.int64).reshape(len(rows), CATEGORIES), label


class Rival:
    """A trainer that learns from batches of records, whatever client delivers them."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.model, self.journal, self.pace = SharedModel(args.model), Journal(args.journal), Pace(args.rate)
        self.journal.open(rank=args.rank, pid=os.getpid(), rate=args.rate, batch_rows=args.rows, check="crc32")
        self.number = 0

    def ready(self) -> None:
        """Call it when the client has partitions."""
        self.journal.write(Journal.READY)

    def learn(self, asked: float, records: list[Record]) -> None:
        """Returns when the batch is in the model. asked: the time.monotonic() at which it was
        requested. It ignores an empty batch."""
        if not records:
            return
        self.number += 1
        self.pace.got(len(records), time.monotonic() - asked)
        self._write_yielded(records)
        dense, cat, label = decode([r.value for r in records])
        self.pace.wait()
        self.journal.write(Journal.BEGIN, self.number)
        p = self.model.learn(dense, cat, label)
        self.journal.write(Journal.APPLIED, self.number, len(records), p.astype(np.float32).tobytes())

    def _write_yielded(self, records: list[Record]) -> None:
        runs: list[tuple[int, int]] = []
        for r in records:
            file = self.journal.name((r.partition, 0), r.partition)
            if runs and runs[-1][0] == file:
                runs[-1] = (file, runs[-1][1] + 1)
            else:
                runs.append((file, 1))
        offsets = np.array([r.offset for r in records], np.int64)
        checks = np.array([zlib.crc32(r.value) for r in records], np.uint64)
        self.journal.yielded_rows(self.number, runs, offsets, checks)
