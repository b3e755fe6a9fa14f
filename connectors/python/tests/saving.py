"""What tests of checkpoints share: training a model for a few steps, and the calls that the agent got."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import headrace
import numpy as np
from agent import CALL, Agent

Agents = Callable[..., Agent]


def stepped(stream: headrace.Stream, steps: int, weights: np.ndarray) -> int:
    """Trains a model whose weights are the sum of the ids that it has seen."""
    step = 0
    for _ in range(steps):
        weights += next(stream)["id"].sum()
        step = stream.step()
    return step


def calls(agent: Agent) -> list[str]:
    return [c["call"] for c in agent.of(CALL)]


def saved_thrice(stream: headrace.Stream, folder: Path) -> list[str]:
    with headrace.Checkpointer(folder, stream) as ck:
        return [ck.save(stepped(stream, 1, np.zeros(1)), {"w": np.full(4, n)}).wait(300) for n in range(3)]
