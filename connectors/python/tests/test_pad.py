"""tail="pad": short batches at their full size, with a weight for each row."""

from __future__ import annotations

from collections.abc import Callable

import headrace
import numpy as np
import pytest
from agent import Agent
from headrace._pad import padded, weight

Agents = Callable[..., Agent]


def test_a_short_batch_is_filled_up_with_its_own_rows_and_weight_0(agents: Agents) -> None:
    agents(total=50)
    batches = []
    with headrace.dataset("clicks").batches(20, tail="pad") as stream:
        for b in stream:
            batches.append(b)
            stream.step()
    assert [len(b) for b in batches] == [20, 20, 10]  # records
    full, short = batches[0], batches[2]
    assert full.weight.tolist() == [1.0] * 20
    assert short.weight.dtype == np.float32
    assert short.weight.tolist() == [1.0] * 10 + [0.0] * 10
    assert short["id"].tolist() == list(range(40, 50)) * 2
    assert short["dense"].shape == (20, 3)
    assert [row.tolist() for row in short.ragged("tags")] == [[i] * (i % 4) for i in list(range(40, 50)) * 2]
    assert short["text"].tolist() == [f"r{i}" for i in list(range(40, 50)) * 2]
    assert short.mask("dense").shape == (20, 3)
    assert short.mask("dense")[:10].tolist() == short.mask("dense")[10:].tolist()
    assert [d["id"] for d in short.to_dicts()] == list(range(40, 50))  # without the rows that fill it up
    assert short.offsets.shape == (10,)


def test_slices_of_a_padded_batch_have_its_rows_and_their_weights(agents: Agents) -> None:
    agents(total=10)
    with headrace.dataset("clicks").batches(16, tail="pad") as stream:
        b = next(stream)
        parts = [b.slice(i, i + 4) for i in range(0, 16, 4)]
        assert [len(p) for p in parts] == [4, 4, 2, 0]
        assert [p["id"].shape for p in parts] == [(4,)] * 4
        assert [p.mask("dense").shape for p in parts] == [(4, 3)] * 4
        assert [p.weight.sum() for p in parts] == [4, 4, 2, 0]
        assert np.concatenate([p["id"] for p in parts]).tolist() == [*range(10), *range(6)]
        assert np.concatenate([p.mask("dense") for p in parts]).tolist() == b.mask("dense").tolist()
        assert b.mask("dense")[10:].tolist() == b.mask("dense")[:6].tolist()
        with pytest.raises(KeyError, match="has no mask"):
            parts[3].mask("id")
        stream.step()


def test_without_pad_each_row_counts(agents: Agents) -> None:
    agents(total=10)
    with headrace.dataset("clicks").batches(16) as stream:
        b = next(stream)
        assert b.weight.tolist() == [1.0] * 10 == b.slice(0, 10).weight.tolist()
        stream.step()


def test_a_batch_without_rows_is_padded_with_nothing(agents: Agents) -> None:
    agents(total=5)
    with headrace.dataset("clicks").batches(5) as stream:
        none = next(stream).slice(0, 0)
        columns = {name: padded(none[name], 0, 3) for name in none}
        assert columns["dense"].shape == (3, 3)
        assert columns["tags"].tolist() == [[], [], []]
        assert columns["text"].tolist() == ["", "", ""]
        assert weight(0, 3).tolist() == [0, 0, 0]
        stream.step()


def test_another_tail_is_refused_by_name(agents: Agents) -> None:
    agents()
    with pytest.raises(ValueError, match='tail=\'x\'; it is "short", "pad" or "drop"'):
        headrace.dataset("clicks").batches(5, tail="x")
