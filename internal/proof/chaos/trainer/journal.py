"""The settings of a trainer (CHAOS_TRAINER), and its journal.

Each entry is one write(2), which survives any death of the process. So a batch with APPLIED is in
the model, and a batch without is not. journal.go describes the bytes.
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
    """The id of a cut, as the aux of an entry."""
    return struct.unpack("<q", struct.pack("<Q", int(cut, 16)))[0]
