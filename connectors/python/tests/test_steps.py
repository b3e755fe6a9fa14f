"""Steps: an interrupted next() goes on with the list that it had begun."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import headrace
import pytest
from agent import Agent
from headrace._steps import Steps

Agents = Callable[..., Agent]

FILES = ("_batch.py", "_rounds.py", "_steps.py", "_stream.py")
FUNCTIONS = ("__init__", "__next__", "_again", "_begun", "_next_of", "_next_round", "_of_round")


class Interrupts:
    """Raises KeyboardInterrupt before the n-th line of next() that runs, and then before a later one."""

    def __init__(self) -> None:
        self.at = 1
        self.lines = 0
        self.seen: set[str] = set()

    def __enter__(self) -> None:
        self.lines = 0
        sys.settrace(self._trace)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, _: Any) -> Any:
        path, name = Path(frame.f_code.co_filename), frame.f_code.co_name
        if path.name not in FILES or path.parent.name != "headrace" or name not in FUNCTIONS:
            return None
        # CPython runs signal handlers at the beginning of a function, after calls and in loops: never between
        # the last line of Steps.__next__() and its return.
        if event == "line" and linecache.getline(str(path), frame.f_lineno).strip() != "return batches":
            self.lines += 1
            self.seen.add(name)
            if self.lines == self.at:
                self.at += 2
                raise KeyboardInterrupt
        return self._trace


@pytest.mark.parametrize("rounds", [False, True])
def test_an_interrupt_at_any_line_of_next_loses_and_repeats_no_batch(agents: Agents, rounds: bool) -> None:
    agents(total=200, per_frame=4, model="replicated" if rounds else "private")
    trainer = headrace.init(rank=0, world_size=1)
    request = headrace.dataset("clicks")._request(10, None, True)
    interrupts = Interrupts()
    ids: list[list[int]] = [[], []]
    with Steps(trainer, request, [0, 1], rounds) as steps:
        while not rounds or len(ids[1]) < 200:  # the agent of this test tells no last round
            try:
                with interrupts:
                    batches = next(steps)
            except StopIteration:
                break
            except KeyboardInterrupt:
                if steps._begun():
                    with pytest.raises(ValueError, match="begun and not yielded"):
                        steps.step()
                continue
            assert len(batches) == 2
            for batch in batches:
                ids[batch.virtual_rank or 0] += batch["id"].tolist()
            assert steps.unstepped == 2
            steps.step()
            assert trainer.rows_stepped() == steps.stats().rows == sum(map(len, ids))
            interrupts.at = interrupts.at % 3 + 1
    assert ids == [list(range(200))] * 2
    assert {"__init__", "_again"} <= interrupts.seen
