"""One reader of a queue's benchmark, timed: `python -m bench.QUEUE.readers WHICH FORM BROKER RECORDS [check]`
prints its figures as one JSON object."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any


def main(readers: dict[str, Callable[[str, str], Any]]) -> None:
    which, form, broker, records = *sys.argv[1:4], int(sys.argv[4])
    check = sys.argv[5:] == ["check"]
    reader = readers[which](form, broker)
    child_cpu: Callable[[], float] = getattr(reader, "child_cpu", lambda: 0.0)
    start, used, child = time.monotonic(), time.process_time(), child_cpu()
    n, checksum = 0, 0.0
    with closing(reader.batches()) as batches:  # Headrace's side steps the last batch, and waits for its ack
        for arrays in batches:
            n += len(arrays[0])
            if check:
                checksum += sum(float(a.sum(dtype="float64")) for a in arrays if a.dtype == "float32")
            if n >= records:
                break
    seconds, cpu = time.monotonic() - start, time.process_time() - used
    child = child_cpu() - child
    getattr(reader, "end", lambda: None)()
    got = {"rows": n, "seconds": seconds, "cpu_seconds": cpu, "child_cpu_seconds": child, "checksum": checksum}
    print(json.dumps(got), flush=True)
