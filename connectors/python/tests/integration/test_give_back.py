"""Rows that were yielded and not stepped are given back, and come again."""

from __future__ import annotations

import threading
import time
from typing import Any

import headrace
import pytest

N = 1000


def test_rows_that_are_given_back_come_again(job: Any) -> None:
    job.write(N)
    job.up("--model", "replicated")
    job.apply()
    with headrace.dataset("rows").batches(10) as stream:
        first = [next(stream), next(stream), next(stream)]
        stream.step(through=first[0].number)
        assert stream.give_back() == 20
        assert stream.unstepped == 0
        with pytest.raises(ValueError, match="through=2: no batch is unstepped"):
            stream.step(through=2)
        ids = first[0]["id"].tolist()
        for b in stream:
            assert b.number > 3
            ids += b["id"].tolist()
            stream.step(through=b.number)
        assert sorted(ids) == list(range(N))
        assert stream.stats().batches == 3 + 99


def test_a_next_that_waits_ends_when_its_rows_are_given_back(job: Any) -> None:
    job.write(100)
    job.up("--model", "replicated")
    job.apply()
    stream = headrace.dataset("rows").batches(10)
    failed: list[Exception] = []

    def iterate() -> None:
        try:
            for _ in stream:
                pass
        except headrace.HeadraceError as error:
            failed.append(error)

    thread = threading.Thread(target=iterate)
    thread.start()
    deadline = time.monotonic() + 300
    while stream.unstepped < 10 or not stream._channel.waiting:  # next() waits for the end, which waits for steps
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert stream.give_back() == 100
    thread.join(300)
    assert not thread.is_alive()
    assert failed
    ids = []
    for b in stream:
        ids += b["id"].tolist()
        stream.step()
    assert sorted(ids) == list(range(100))
    stream.close()
