"""The time of a comparison ends with the last ack."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from bench.stepped import stepped


class Stats(NamedTuple):
    batches: int
    durable: int


class Stream:
    """Steps become durable one look later."""

    def __init__(self) -> None:
        self.yielded = self.steps = self.durable = 0

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> int:
        self.yielded += 1
        return self.yielded

    def step(self) -> None:
        self.steps += 1

    def stats(self) -> Stats:
        self.durable += self.durable < self.steps
        return Stats(self.yielded, self.durable)


def test_the_last_batch_is_stepped_and_its_ack_is_waited_for() -> None:
    stream, taken = Stream(), []
    with closing(stepped(stream, lambda b: 10 * b)) as batches:
        for b in batches:
            taken.append(b)
            if len(taken) == 3:
                break
    assert taken == [10, 20, 30]
    assert stream.steps == stream.yielded == stream.durable == 3
