"""Learn click-through rate from a click log, with a model of 200 MB and checkpoints
that outlive a killed trainer.

    headrace run --model replicated -f clicks.yaml -- python train.py --checkpoints ckpt --memory 1 --storage 10

The model is logistic regression on hashed features, trained by AdaGrad. --memory and
--storage are the seconds between checkpoints in memory and on storage. With --memory 0
the same trainer has checkpoints on storage alone. quickstart.py runs both side by side
and kills them.
"""

from __future__ import annotations

import argparse
import json
import os
import time

import headrace
import numpy as np

COLUMNS, BUCKETS = 26, 1 << 20  # 26 x 2^20 weights and as many sums of squares, float32: 208 MiB


def learn(weights: np.ndarray, squares: np.ndarray, cat: np.ndarray, label: np.ndarray) -> None:
    at = (cat + np.arange(COLUMNS, dtype=np.int64) * BUCKETS).ravel()
    score = weights[at].reshape(-1, COLUMNS).sum(axis=1)
    wrong = (1 / (1 + np.exp(-np.clip(score, -30, 30))) - label).repeat(COLUMNS).astype(np.float32)
    np.add.at(squares, at, wrong * wrong)
    np.subtract.at(weights, at, 0.05 * wrong / np.sqrt(squares[at] + 1))


def records_of(cut: dict) -> int:
    """How many records a checkpoint's cut says are in the model."""
    rows = 0
    for dataset in cut["datasets"]:
        for partition in dataset["partitions"]:
            for tally in [partition.get("done_records"), *(p.get("records") for p in partition.get("passes") or ())]:
                rows += (tally or {}).get("rows", 0)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoints", required=True, help="their folder")
    parser.add_argument("--memory", type=float, default=1, help="seconds between checkpoints in memory; 0: none")
    parser.add_argument("--storage", type=float, default=10, help="seconds between checkpoints on storage")
    parser.add_argument("--journal", help="folder for a file that says what this process did, for quickstart.py")
    args = parser.parse_args()
    began = time.time()
    weights, squares = np.zeros(COLUMNS * BUCKETS, np.float32), np.zeros(COLUMNS * BUCKETS, np.float32)
    step = records = 0
    with (
        headrace.dataset("clicks").batches(1024) as stream,
        headrace.Checkpointer(args.checkpoints, stream, memory=args.memory > 0) as ck,
    ):
        restored = ck.restore()
        source, why = "start", ""
        if restored is not None:
            np.copyto(weights, restored.state["weights"])
            np.copyto(squares, restored.state["squares"])
            step, records, source, why = restored.step, restored.state["records"], restored.source, restored.why
            if records_of(restored.cut.body) != records:
                raise SystemExit(f"the model has {records} records, and its cut has {records_of(restored.cut.body)}")
        del restored  # its arrays are views of the slot
        journal = Journal(args.journal, began, records, source, why)
        ck.prepare({"weights": weights, "squares": squares, "records": records})
        in_memory = on_storage = time.monotonic()
        saved: list[headrace.Saved] = []
        for batch in stream:
            learn(weights, squares, batch["cat"], batch["label"])
            step, records = stream.step(step + 1), records + len(batch)
            journal.trained(records)
            now = time.monotonic()
            store = now - on_storage >= args.storage
            if store or (args.memory and now - in_memory >= args.memory):
                state = {"weights": weights, "squares": squares, "records": records}
                saved = [s for s in saved if not s.done] + [ck.save(step, state, storage=store)]
                after = time.monotonic()
                journal.saved(after - now)
                in_memory, on_storage = after, after if store else on_storage


class Journal:
    """What this process did, in a mapped file that survives the process."""

    def __init__(self, folder: str | None, began: float, records: int, source: str, why: str) -> None:
        self._page = None
        if folder is None:
            return
        os.makedirs(folder, exist_ok=True)
        name = os.path.join(folder, f"{time.time_ns()}-{os.getpid()}")
        np.zeros(8, np.float64).tofile(name + ".page")
        self._page = np.memmap(name + ".page", np.float64, "r+", shape=(8,))
        self._page[:] = records, 0, 0, 0, 0, 0, 0, 0  # records, first step, last step, saves, seconds spent in saves
        about = {
            "pid": os.getpid(),
            "began": began,
            "restored": records,
            "ready": time.time(),
            "source": source,
            "why": why,
        }
        with open(name + ".tmp", "w") as file:
            json.dump(about, file)
        os.rename(name + ".tmp", name + ".json")

    def trained(self, records: int) -> None:
        if self._page is not None:
            now = time.time()
            if self._page[1] == 0:
                self._page[1] = now
            self._page[2] = now
            self._page[0] = records

    def saved(self, seconds: float) -> None:
        if self._page is not None:
            self._page[3] += 1
            self._page[4] += seconds


if __name__ == "__main__":
    main()
