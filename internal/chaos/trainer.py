"""A trainer of the chaos test: its model is its journal.

Each entry is one write(2), which outlives the process whatever ends it: so a
batch with APPLIED is in the model, and one without is not. journal.go describes
the bytes.
"""

import json
import os
import random
import struct
import sys
import threading
import time
import warnings

import headrace
import numpy as np

START, YIELDED, APPLIED, STEPPED, ENDED, CLOSED, FENCED, DONE, BAD = range(1, 10)
LEFT, REFUSED, NO_AGENT, FAILED, NO_DATASET = 7, 3, 4, 5, 6  # exit statuses; see crew.go

cfg = json.loads(os.environ["CHAOS_TRAINER"])
rnd = random.Random(cfg["seed"])
journal = os.open(cfg["journal"], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
step_lock = threading.Lock()
steps = streams = 0
leaving = False  # the process goes, whatever its other threads are at


def write(kind, stream=0, number=0, aux=0, keys=b""):
    entry = struct.pack("<4sHHIIqqq", b"CHJ1", kind, stream, len(keys) // 8, 0, number, aux, time.monotonic_ns())
    entry += keys
    if os.write(journal, entry) != len(entry):
        raise OSError("the journal's disk is full")


def mix(ids):
    """The check that each record carries beside its id."""
    z = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return ((z ^ (z >> np.uint64(29))) >> np.uint64(1)).astype(np.int64)


def keys_of(batch, number, lines):
    if lines:
        pairs = [row.split(b";") for row in batch["value"]]
        ids, check = (np.array([int(p[k]) for p in pairs], np.int64) for k in (0, 1))
    else:
        ids, check = batch["id"], batch["check"]
    if not np.array_equal(mix(ids), check):
        write(BAD)
    passes = batch.positions()["pass"].astype(np.int64)
    return ids | passes << 40 | np.int64(number) << 56


def read(slot):
    """One stream after the other, until one sees the end of data."""
    global leaving, streams
    while True:
        with step_lock:
            streams += 1
            stream = streams
        left = rnd.randint(1, 40) if slot["closes"] and rnd.random() < 0.5 else 0
        with headrace.dataset(slot["dataset"]).batches(
            slot["rows"], ack=slot["ack"], max_wait=slot["max_wait"] or None
        ) as s:
            for b in s:
                if slot["ack"] == "auto" and b.number > 1:
                    write(STEPPED, stream, b.number - 1, s.stats().durable)
                write(YIELDED, stream, b.number, 0, keys_of(b, slot["number"], slot["lines"]).tobytes())
                time.sleep(len(b) / slot["rate"])
                left -= 1
                if left == 0:
                    break  # this batch was yielded in vain
                write(APPLIED, stream, b.number)
                if slot["ack"] == "step":
                    say_step(s, stream, b.number)
            else:
                write(ENDED, stream)
                return
        write(CLOSED, stream)
        if cfg["leaves"] and rnd.random() < 0.2:
            leaving = True
            finish()
            os._exit(LEFT)


def say_step(s, stream, number):
    global steps
    with step_lock:  # over all streams of a rank steps grow
        steps += 1
        s.step(steps if cfg["model"] == "replicated" else None)
    write(STEPPED, stream, number, s.stats().durable)


def guarded(slot):
    try:
        read(slot)
    except headrace.Fenced as error:
        end(REFUSED, error)
    except headrace.DatasetError as error:
        end(NO_DATASET, error)
    except headrace.AgentUnavailable as error:
        end(NO_AGENT, error)


def failed(args):
    """Any other exception of a thread ends the process, unless it is leaving."""
    if not leaving:
        end(FAILED, args.exc_value)


def end(status, error):
    write(FENCED if status == REFUSED else START)
    os.write(2, f"chaos: {type(error).__name__}: {error}\n".encode())
    os._exit(status)


def finish():
    """Leaves the group. DONE is written only if every step was answered."""
    trainer = headrace.init()
    channels = list(trainer.control._channels.values())
    headrace.shutdown()
    if (fault := trainer.control.fault) is not None:
        end(REFUSED if isinstance(fault, headrace.Fenced) else FAILED, fault)
    if any(c.acked < c.stepped for c in channels if c.tracked):
        os.write(2, b"chaos: shutdown() gave up before its steps were answered\n")
        os._exit(NO_AGENT)
    write(DONE)


def main():
    warnings.simplefilter("ignore", headrace.UnsteppedWarning)
    threading.excepthook = failed
    write(START, number=os.getpid())
    try:
        headrace.init()
    except headrace.AgentUnavailable as error:
        end(NO_AGENT, error)
    except headrace.Fenced as error:
        end(REFUSED, error)
    except headrace.HeadraceError as error:
        end(FAILED, error)
    threads = [threading.Thread(target=guarded, args=(slot,)) for slot in cfg["slots"]]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
