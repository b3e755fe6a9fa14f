"""Learn click-through rate from a click log in Criteo's TSV layout, with many
trainers on ONE model.

The model is logistic regression on hashed features, trained by FTRL-proximal
(McMahan et al., "Ad Click Prediction: a View from the Trenches", KDD 2013). It
lives in a file that every trainer maps and writes without locks (Hogwild; Niu
et al., NIPS 2011), so the job is `model: shared`: the model outlives a trainer.
Every batch is predicted first and learned from afterwards, so the figures are
those of records that the model had never seen (progressive validation).

    headrace run --nproc-per-node 2 -f clicks.yaml -- python train.py

With --journal a trainer also writes down what it did with each record, for a report
that does not use what Headrace itself says. A trainer may be killed at any instant.
The journal is right all the same, because of its order:

        YIELDED  the trainer has these records
        BEGIN    written before the model is changed
        (learn)  the model changes
        APPLIED  written after the last change: the records are in the model
        STEPPED  stream.step() has returned

Each entry is one write(2), which survives the process. So a batch with APPLIED is in
the model, and a batch without BEGIN is not. A killed trainer leaves at most one batch
with BEGIN and without APPLIED: it is not known how much of it is in the model. The
report counts such a batch as applied where that makes a repeat, and as not applied
where that makes a loss. internal/proof/demo/report/entry.go describes the bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import struct
import sys
import time
import zlib

import headrace
import numpy as np

INTEGERS, CATEGORIES, BUCKETS = 13, 26, 1 << 15
WEIGHTS = CATEGORIES * BUCKETS + INTEGERS + 1


class SharedModel:
    """FTRL-proximal's z and n, one float32 each per weight, in a mapped file.

    A file of zeros is the untrained model, so the first trainer creates it.
    """

    alpha, beta, l1, l2 = 0.1, 1.0, 0.2, 1.0

    def __init__(self, path: str) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(fd, 2 * 4 * WEIGHTS)
            with os.fdopen(os.dup(fd), "r+b") as file:
                state = np.memmap(file, np.float32, "r+", shape=(2, WEIGHTS))
        finally:
            os.close(fd)
        self.z, self.n = state[0], state[1]
        self.columns = np.arange(CATEGORIES, dtype=np.int64) * BUCKETS
        self.dense_at = CATEGORIES * BUCKETS + np.arange(INTEGERS + 1)
        self.sums = np.zeros(CATEGORIES * BUCKETS, np.float32)  # all zero between batches

    def weights(self, z: np.ndarray, n: np.ndarray) -> np.ndarray:
        return np.where(
            np.abs(z) <= self.l1,
            np.float32(0),
            (np.sign(z) * self.l1 - z) / ((self.beta + np.sqrt(n)) / self.alpha + self.l2),
        )

    def learn(self, dense: np.ndarray, cat: np.ndarray, label: np.ndarray) -> np.ndarray:
        """Predict (rows,) probabilities, then learn from the labels.

        dense is (rows, 13), -1 where a value is missing; cat is (rows, 26).
        """
        at = cat + self.columns
        x = np.ones((len(dense), INTEGERS + 1), np.float32)
        np.log2(dense + 2, out=x[:, :INTEGERS])
        x[:, :INTEGERS] *= 0.125

        z, n = self.z[at], self.n[at]
        w = self.weights(z, n)
        dense_z, dense_n = self.z[self.dense_at], self.n[self.dense_at]
        dense_w = self.weights(dense_z, dense_n)
        p = 1 / (1 + np.exp(-np.clip(w.sum(axis=1) + x @ dense_w, -30, 30)))

        error = (p - label).astype(np.float32)
        # An id that occurs often in the batch gets the sum of its gradients, once:
        # all its places read the same sum and write the same value.
        flat = at.ravel()
        np.add.at(self.sums, flat, np.repeat(error, CATEGORIES))
        gradient = self.sums[at]
        self.sums[flat] = 0
        self.update(at, n, w, gradient)
        self.update(self.dense_at, dense_n, dense_w, error @ x)
        return p

    def update(self, at: np.ndarray, n: np.ndarray, w: np.ndarray, gradient: np.ndarray) -> None:
        """Add to z and n what the gradient at n and w adds.

        The sums are read again here: another trainer may have changed them while this one computed, or
        waited for a CPU, and what it learned must stay. n comes first: with more in z than
        in n, a weight would be too large, and the other way round it is only small.
        """
        squares = gradient * gradient
        self.n[at] += squares
        self.z[at] += gradient - (np.sqrt(n + squares) - np.sqrt(n)) / self.alpha * w


class Journal:
    """What this process did with each record; see the docstring of the module."""

    OPEN, READY, FILE, YIELDED, BEGIN, APPLIED, STEPPED, END = range(1, 9)

    def __init__(self, path: str | None) -> None:
        self.fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600) if path else -1
        self.named: dict[tuple[str, int], int] = {}  # (partition, segment) -> its number here
        # The checksum of a record's values: label, integers, hashed categories.
        keys = [splitmix(j + 1) for j in range(1 + INTEGERS + CATEGORIES)]
        self.keys = np.array(keys, np.uint64)

    def write(self, kind: int, number: int = 0, rows: int = 0, payload: bytes = b"") -> None:
        if self.fd < 0:
            return
        entry = struct.pack("<4sIQqII", b"HRJ1", kind, number, time.monotonic_ns(), rows, len(payload))
        entry += payload
        entry += struct.pack("<I", zlib.crc32(entry))
        if os.write(self.fd, entry) != len(entry):
            raise OSError("the journal's disk is full")

    def open(self, **about: object) -> None:
        self.write(self.OPEN, payload=json.dumps(about).encode())

    def yielded(self, batch: headrace.Batch) -> None:
        if self.fd < 0:
            return
        runs = [(self.name((r.partition, r.segment), r.name), r.rows) for r in batch.ranges]
        checks = (
            batch["label"].astype(np.uint64) * self.keys[0]
            + batch["dense"].astype(np.int64).view(np.uint64) @ self.keys[1 : 1 + INTEGERS]
            + batch["cat"].view(np.uint64) @ self.keys[1 + INTEGERS :]
        )
        # If an offset is not a record's number in its partition, a column may have the number.
        offsets = batch.offsets
        if "place" in batch:
            offsets = batch["place"]
        self.yielded_rows(batch.number, runs, offsets, checks)

    def name(self, key: tuple[str, int], name: str) -> int:
        """The number of a file or partition in this journal."""
        if key not in self.named:
            self.named[key] = len(self.named)
            self.write(self.FILE, payload=json.dumps({"segment": self.named[key], "name": name}).encode())
        return self.named[key]

    def yielded_rows(
        self, number: int, runs: list[tuple[int, int]], offsets: np.ndarray, checks: np.ndarray
    ) -> None:
        """runs are (number of the file, rows), in order; offsets are int64 and checks uint64 per row."""
        head = struct.pack("<II", len(runs), 0) + np.array(runs, np.int64).tobytes()
        self.write(self.YIELDED, number, len(offsets), head + offsets.tobytes() + checks.tobytes())


def splitmix(z: int) -> int:
    mask = (1 << 64) - 1
    z = (z + 0x9E3779B97F4A7C15) & mask
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
    return z ^ z >> 31


class Pace:
    """Holds a trainer to a rate, as a slower device would: it has a batch of r rows for at
    least r / rate seconds. If it sleeps too long, it sleeps less later. Waiting for
    data does not count."""

    def __init__(self, rows_per_second: float) -> None:
        self.rate, self.until = rows_per_second, 0.0

    def got(self, rows: int, waited: float) -> None:
        now = time.monotonic()
        start = now if waited > 0.002 else min(now, self.until) if self.until else now
        self.until = start + rows / self.rate if self.rate else now

    def wait(self) -> None:
        left = self.until - time.monotonic()
        if left > 0:
            time.sleep(left)


def main() -> int:
    parser = argparse.ArgumentParser(description="Learn click-through rate, many trainers on one model.")
    parser.add_argument("--dataset", default="clicks")
    parser.add_argument("--model", help="file of the shared model, made if it is not there "
                        "(default /dev/shm/<dataset>.model: gone with the next boot)")
    parser.add_argument("--rows", type=int, default=512, help="rows per batch (default 512)")
    parser.add_argument("--rate", type=float, default=0, help="at most this many rows/s (default: no limit)")
    parser.add_argument("--max-wait", type=float, help="s after which a batch comes with fewer rows: for a topic "
                        "that is read as it is written (default: wait until it is full)")
    parser.add_argument("--journal", help="write down here what was done with each record")
    args = parser.parse_args()

    model = SharedModel(args.model or f"/dev/shm/{args.dataset}.model")
    journal, pace = Journal(args.journal), Pace(args.rate)
    rank = int(os.environ.get("HEADRACE_RANK", os.environ.get("RANK", "0")))
    journal.open(rank=rank, pid=os.getpid(), rate=args.rate, batch_rows=args.rows)
    rows, loss, shown = 0, 0.0, time.monotonic()
    with headrace.dataset(args.dataset).batches(args.rows, max_wait=args.max_wait) as stream:
        journal.write(Journal.READY)
        asked = time.monotonic()
        for b in stream:
            pace.got(len(b), time.monotonic() - asked)
            journal.yielded(b)
            pace.wait()
            journal.write(Journal.BEGIN, b.number)
            p = model.learn(b["dense"], b["cat"], b["label"])
            journal.write(Journal.APPLIED, b.number, len(b), p.astype(np.float32).tobytes())
            stream.step()
            journal.write(Journal.STEPPED, b.number)

            p = np.clip(p, 1e-6, 1 - 1e-6)
            loss -= float(np.log(np.where(b["label"] > 0, p, 1 - p)).sum())
            rows += len(b)
            if time.monotonic() - shown > 5:
                print(f"{rows:,} rows, progressive log loss {loss / rows:.4f}", flush=True)
                shown = time.monotonic()
            asked = time.monotonic()
    used = resource.getrusage(resource.RUSAGE_SELF)
    journal.write(Journal.END, payload=json.dumps({"cpu_seconds": used.ru_utime + used.ru_stime}).encode())
    print(f"end of data: {rows:,} rows, progressive log loss {loss / max(rows, 1):.4f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
