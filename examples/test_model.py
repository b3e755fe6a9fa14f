"""The quick start's model by itself: two trainers that write it at the same time lose nothing of each other.

    make test-quickstart
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from demo_run import click_trainer

train = click_trainer()


def batches(count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Random (dense, cat, label); ids occur several times in a batch."""
    random = np.random.default_rng(seed)
    out = []
    for _ in range(count):
        cat = random.integers(0, 40, (256, train.CATEGORIES))
        out.append((random.integers(-1, 50, (256, train.INTEGERS)), cat, cat[:, 0] % 2))
    return out


def test_a_trainer_that_stands_still_while_it_learns_undoes_nothing_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, fast = (train.SharedModel(str(tmp_path / "model")) for _ in range(2))
    first, *others = batches(30, seed=1)

    # The slow one has read the model and computed what to add. It waits for a CPU while the fast one learns.
    update, states = slow.update, []

    def update_after_a_wait(*values: np.ndarray) -> None:
        if not states:
            for b in others:
                fast.learn(*b)
            states.append((fast.z.copy(), fast.n.copy()))
        update(*values)

    monkeypatch.setattr(slow, "update", update_after_a_wait)
    slow.learn(*first)

    (z, n), = states
    assert n.max() > 0
    alone = train.SharedModel(str(tmp_path / "alone"))
    alone.learn(*first)  # from zeros, as the slow one read them
    np.testing.assert_allclose(slow.n, n + alone.n, rtol=1e-5)
    np.testing.assert_allclose(slow.z, z + alone.z, rtol=1e-5, atol=1e-4)
