"""Private and shared models: each stream has a thread, and steps for itself."""

import contextlib
import os
import threading
import time

import headrace
import numpy as np

from .ending import LEFT, enough, failed, finish, leaving
from .journal import BAD, CLOSED, ENDED, STEPPED, YIELDED, cfg, rnd, write
from .sums import content, mix
from .traps import reached


def open_stream(slot, rounds=False):
    return headrace.dataset(slot["dataset"]).batches(
        slot["rows"], ack=slot["ack"], max_wait=slot["max_wait"] or None, rounds=rounds, tail=slot["tail"]
    )


def yielded(stream, number, keys, checks):
    write(YIELDED, stream, number, 0, keys.tobytes())
    if not np.array_equal(mix(keys & ((1 << 40) - 1)), checks):
        write(BAD)
    reached("yield")


class Reader:
    """Reads all slots and gives batches to push(stream, number, keys, checks)."""

    def __init__(self, trainer, push, saving=None, state=None, counts=False):
        self.trainer, self.push, self.saving, self.state = trainer, push, saving, state
        self.lock = threading.Lock()  # a model and its step change together; steps grow over all streams
        self.streams = 0
        self.steps = 0 if counts else None  # only where the library does not count steps itself
        self.last = None  # the stream that stepped last

    def run(self):
        threads = [threading.Thread(target=self.read, args=(slot,)) for slot in cfg["slots"]]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.save_last()

    def save_last(self):
        with self.lock:
            if self.saving is not None and self.saving.unsaved():
                self.saving.save(self.trainer.last_step, self.state, self.last, wait=True)

    def read(self, slot):
        while True:
            with self.lock:
                self.streams += 1
                stream = self.streams
            left = rnd.randint(1, 40) if slot["closes"] and rnd.random() < 0.5 else 0
            with open_stream(slot) as s:
                threading.Thread(target=self.close_when_enough, args=(s,), daemon=True).start()
                try:
                    over = self.read_stream(slot, s, stream, left)
                except headrace.HeadraceError as error:
                    if not enough.is_set() or isinstance(error, headrace.Fenced):
                        raise
                    over = True  # close_when_enough closed it
            if over:
                return
            if cfg["leaves"] and rnd.random() < 0.2:
                self.leave()

    def read_stream(self, slot, s, stream, left):
        """Whether it has seen the end of data."""
        last, auto = 0, slot["ack"] == "auto"
        for b in s:
            if auto and last:
                write(STEPPED, stream, last, s.stats().durable)
            last = b.number
            keys, checks = content(b, slot)
            yielded(stream, b.number, keys, checks)
            time.sleep(len(b) / slot["rate"])
            left -= 1
            if left == 0:
                write(CLOSED, stream)
                return False  # this batch is never applied
            if auto:
                self.push(stream, b.number, keys, checks)
            else:
                self.take(s, stream, b.number, keys, checks)
        if auto and last:  # with ack="auto" the end of data steps the last batch, as the next batch would
            write(STEPPED, stream, last, s.stats().durable)
        write(ENDED, stream)
        return True

    def take(self, s, stream, number, keys, checks):
        with self.lock:
            self.push(stream, number, keys, checks)
            reached("apply")
            if self.steps is not None:
                self.steps += 1
            step = s.step(self.steps)
            self.last = s
            write(STEPPED, stream, number, s.stats().durable)
            reached("step")
            if s.stats().durable == number:
                reached("acked")
            if self.saving is not None:
                self.saving.new = True
                if self.saving.due():
                    self.saving.new = self.saving.save(step, self.state, s)

    def close_when_enough(self, s):
        enough.wait()
        with contextlib.suppress(headrace.HeadraceError):
            s.close()

    def leave(self):
        with self.lock:
            leaving.set()
            try:
                if self.saving is not None and self.saving.new and rnd.random() < 0.5:
                    self.saving.save(self.trainer.last_step, self.state, self.last, wait=True)
                finish()
            except (headrace.HeadraceError, OSError, EOFError, RuntimeError) as error:
                failed(error)
            os._exit(LEFT)
