"""What a trainer was told (CHAOS_TRAINER), and what it writes down.

Each entry is one write(2), which outlives the process whatever ends it: so a
batch with APPLIED is in the model, and one without is not. journal.go describes
the bytes.
"""

import json
import os
import random
import struct
import time

START, YIELDED, APPLIED, STEPPED, ENDED, CLOSED, FENCED, DONE, BAD = range(1, 10)
TRAPPED, SAVED, BOUND, RESTORED, FAILED_SAVE, HASHED, HELD = range(10, 17)

cfg = json.loads(os.environ["CHAOS_TRAINER"])
rnd = random.Random(cfg["seed"])
file = os.open(cfg["journal"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def entry(kind, stream=0, number=0, aux=0, keys=b""):
    return struct.pack("<4sHHIIqqq", b"CHJ1", kind, stream, len(keys) // 8, 0, number, aux, time.monotonic_ns()) + keys


def write(kind, stream=0, number=0, aux=0, keys=b""):
    text = entry(kind, stream, number, aux, keys)
    if os.write(file, text) != len(text):
        raise OSError("the journal's disk is full")


def signed(cut):
    """A cut's id as an entry's aux."""
    return struct.unpack("<q", struct.pack("<Q", int(cut, 16)))[0]
