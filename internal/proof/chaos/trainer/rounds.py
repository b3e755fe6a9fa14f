"""Rounds: either all ranks get a batch, or none does. At each step all ranks take a batch of the same
stream, so no rank has to ask whether the others have one. rounds.go compares the journals of all
ranks; this file checks what one rank can see."""

import threading

import headrace

from .ending import enough, leaving
from .journal import ENDED, cfg, write
from .reader import open_stream, yielded
from .sums import content

PATIENCE = 60  # seconds, for the signal that all records of an input without an end are in


class RoundInput:
    def __init__(self):
        self.streams = [open_stream(slot, rounds=True) for slot in cfg["slots"]]
        self.alive = list(zip(cfg["slots"], self.streams, range(1, len(self.streams) + 1)))
        self.rows = 0  # rows of the current round on all ranks, as the library says

    def start(self):
        threading.Thread(target=self.close_when_enough, daemon=True).start()

    @property
    def over(self):
        return not self.alive

    def next(self, step):
        """This rank's batch of the next round, which may have no rows; none at the end. At the same step all
        ranks take a batch of the same stream."""
        while self.alive:
            one = self.alive[step % len(self.alive)]
            slot, s, stream = one
            try:
                b = next(s)
            except StopIteration:
                write(ENDED, stream)
                self.alive.remove(one)
                continue
            except headrace.HeadraceError as error:
                if not self.is_enough(error):
                    raise
                self.alive = []
                break
            keys, checks = content(b, slot)
            yielded(stream, b.number, keys, checks)
            if slot["tail"] == "drop" and len(keys) != slot["rows"]:
                raise RuntimeError(f"tail is drop, and round {b.number} has {len(keys)} rows here, not {slot['rows']}")
            self.rows = b.global_rows
            return [(s, stream, b.number, keys, checks, slot)]
        return []

    def is_enough(self, error):
        """Whether the error only means that all records of an input without an end are in the models: then
        some rank has closed its stream."""
        return enough.is_set() or "closed its stream" in str(error) and enough.wait(PATIENCE)

    def judge(self, found, places, keys, world, over):
        """places: the sum of place() over all ranks; keys: the number of records on all ranks; over: how
        many ranks have reached the end."""
        if over not in (0, world):
            raise RuntimeError(f"{over} of {world} ranks have reached the end of the rounds")
        mine = found[-1][1] << 32 | found[-1][2] if found else 0
        if places != mine * world:
            raise RuntimeError(f"this rank is at {mine:#x}, and others are elsewhere: all {world} add up to {places:#x}")
        if found and keys != self.rows:
            raise RuntimeError(f"the ranks got {keys} records in round {mine:#x}, and global_rows is {self.rows}")

    def step(self, step, found):
        s = found[0][0]
        s.step(step, batches=1)
        return s.stats().durable

    def close_when_enough(self):
        enough.wait()
        for s in self.streams:
            s.close()

    def close(self):
        leaving.set()
        for s in self.streams:
            s.close()
