"""Learn a line from events in Kafka, with any number of trainers on one model.

    headrace up -f events.yaml &
    python train.py & python train.py

The model is two float64 in a file that every trainer maps (Hogwild). With --seen a
trainer appends the id of every record that it has put into the model, before it calls
stream.step(), for a report that does not use what Headrace itself says.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

import headrace
import numpy as np


def shared(path: str) -> np.ndarray:
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(fd, 16)
    finally:
        os.close(fd)
    return np.memmap(path, dtype=np.float64, mode="r+", shape=(2,))


def main() -> int:
    parser = argparse.ArgumentParser(description="Learn y = a x + b from a stream of events.")
    parser.add_argument("--dataset", default="events")
    parser.add_argument("--model", default="events.model", help="file of the shared model")
    parser.add_argument("--rows", type=int, default=100, help="rows per batch")
    parser.add_argument("--max-wait", type=float, help="seconds that a row waits for a full batch")
    parser.add_argument("--seconds", type=float, default=0, help="least time of a step, in seconds")
    parser.add_argument("--seen", help="file to which the ids of the records in the model are appended")
    args = parser.parse_args()

    model, rows = shared(args.model), 0
    seen = os.open(args.seen, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600) if args.seen else -1
    with headrace.dataset(args.dataset).batches(args.rows, max_wait=args.max_wait) as stream:
        for b in stream:
            x, y = b["x"].astype(np.float64), b["y"].astype(np.float64)
            error = model[0] * x + model[1] - y
            model -= 0.2 * np.array([(error * x).mean(), error.mean()])
            if seen >= 0:
                os.write(seen, "".join(f"{n}\n" for n in b["id"]).encode())
            stream.step()
            rows += len(b)
            time.sleep(args.seconds)
    print(f"end of data: {rows} rows, y = {model[0]:.2f} x + {model[1]:.2f}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
