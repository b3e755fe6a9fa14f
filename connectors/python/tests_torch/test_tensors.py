"""Batch.torch() and Loader, with frames of a scripted agent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import headrace
import headrace.torch
import numpy as np
import pytest
import torch
from agent import STEP, Agent
from headrace.torch import Jagged, Loader
from headrace.torch._loader import refuse_pad
from headrace.torch._tensors import _Copy
from torch.utils.data import DataLoader

Agents = Callable[..., Agent]


def test_tensors_on_the_cpu_are_views_of_the_batch(agents: Agents) -> None:
    agents(total=100)
    with headrace.dataset("clicks").batches(40) as stream:
        b = next(stream)
        t = b.torch()
        assert list(t) == list(b.keys())
        assert (t["id"].dtype, t["dense"].dtype, tuple(t["dense"].shape)) == (torch.int64, torch.float32, (40, 3))
        assert t["id"].data_ptr() == b["id"].__array_interface__["data"][0]
        t["dense"][3, 1] = 77
        assert b["dense"][3, 1] == 77
        assert t["text"].tolist()[:2] == ["r0", "r1"]
        later = b.slice(10, 20).torch()
        assert later["id"].tolist() == list(range(10, 20))
        assert later["tags"][1].tolist() == [11] * 3
        stream.step()


def test_tensors_outlive_their_stream(agents: Agents, way: dict[str, int]) -> None:
    agents(total=200, **way)
    with headrace.dataset("clicks").batches(50) as stream:
        kept = []
        for b in stream:
            kept.append(b.torch()["id"])
            stream.step()
    del stream, b
    assert torch.equal(torch.cat(kept), torch.arange(200))


def test_ragged_columns_are_jagged_padded_and_nested(agents: Agents) -> None:
    agents(total=6)
    with headrace.dataset("clicks").batches(6) as stream:
        tags = next(stream).torch()["tags"]
        stream.step()
    assert isinstance(tags, Jagged)
    assert tags.lengths.tolist() == [0, 1, 2, 3, 0, 1]
    assert [row.tolist() for row in tags] == [[], [1], [2, 2], [3, 3, 3], [], [5]]
    assert tags.padded(fill=-1).tolist() == [
        [-1, -1, -1], [1, -1, -1], [2, 2, -1], [3, 3, 3], [-1, -1, -1], [5, -1, -1],
    ]  # fmt: skip
    assert tags.padded(4).shape == (6, 4)
    assert torch.equal(tags.mask().sum(1), tags.lengths)
    with pytest.raises(ValueError, match="row 3 has 3 values, more than length=2"):
        tags.padded(2)
    nested = tags.nested()
    assert nested.layout is torch.jagged
    assert nested.values().data_ptr() == tags.values.data_ptr()
    assert [row.tolist() for row in nested.unbind()] == [row.tolist() for row in tags]
    empty = tags.__class__(tags.values[:0], torch.zeros(1, dtype=torch.int64))
    assert (empty.padded().shape, empty.mask().shape) == ((0, 0), (0, 0))


def test_a_copy_for_another_device_is_one_buffer_with_all_columns(agents: Agents) -> None:
    """What goes to a GPU, but for the transfer itself."""
    agents(total=30)
    with headrace.dataset("clicks").batches(30) as stream:
        b = next(stream).slice(3, 29)
        copy = _Copy({name: b[name] for name in b})
        host = torch.empty(copy._size, dtype=torch.uint8)
        copy.fill(host)
        there = copy.take(host.clone())
        for name, column in b.torch().items():
            if isinstance(column, Jagged):
                assert torch.equal(there[name].values, column.values)
                assert torch.equal(there[name].offsets, column.offsets)
            elif isinstance(column, torch.Tensor):
                assert torch.equal(there[name], column)
                assert there[name].data_ptr() % 4 == 0
        assert there["text"].tolist() == b["text"].tolist()
        assert b.torch("meta")["dense"].shape == (26, 3)  # a device that no view can have
        stream.step()


def test_a_loader_is_what_dataloader_takes(agents: Agents) -> None:
    agent = agents(total=100, per_frame=2)
    loader = Loader("clicks", 30)
    ids: list[int] = []
    for b in DataLoader(loader, batch_size=None):
        assert isinstance(b["id"], torch.Tensor)
        assert isinstance(b["tags"], Jagged)
        ids += b["id"].tolist()
        loader.step()
    assert ids == list(range(100))
    loader.close()
    agent.wait(lambda: len(agent.of(STEP)) == 4)


def test_a_loader_knows_its_batches_and_goes_on_where_it_stopped(agents: Agents) -> None:
    agents(total=100)
    with Loader("clicks", 30) as loader:
        for b in loader:
            assert (b.number, b.rows, b.last) == (1, 30, False)
            assert b.batch is not None
            assert b.batch.ranges[0].rows == 30
            break
        loader.step()
        seen = []
        for b in loader:
            seen.append((b.number, b.rows, b.last))
            loader.step()
        assert seen == [(2, 30, False), (3, 30, False), (4, 10, True)]


def test_a_loader_takes_a_stream_that_is_open(agents: Agents) -> None:
    agents(total=40)
    with headrace.dataset("clicks").batches(40) as stream:
        loader = Loader(stream=stream)
        assert next(iter(loader))["id"].tolist() == list(range(40))
        stream.step()
        with pytest.raises(ValueError, match="stream, which is open already"):
            Loader(stream=stream, rows=3)
        with pytest.raises(ValueError, match='tail="drop" belongs to the stream, which is open already'):
            Loader(stream=stream, tail="drop")
    with pytest.raises(ValueError, match=r"Loader\('clicks', 1024\)"):
        Loader("clicks")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:This DataLoader will create")
@pytest.mark.parametrize("context", ["fork", "spawn"])
def test_workers_are_refused_with_the_reason_and_what_to_do(agents: Agents, context: str) -> None:
    agents(total=100)
    loader: DataLoader[Any] = DataLoader(
        Loader("clicks", 10), batch_size=None, num_workers=1, multiprocessing_context=context
    )
    with pytest.raises((RuntimeError, headrace.HeadraceError), match="use num_workers=0: the agent reads"):
        next(iter(loader))


def test_a_stream_that_is_given_to_dataloader_names_the_loader(agents: Agents) -> None:
    agents(total=100)
    with headrace.dataset("clicks").batches(10) as stream:
        with pytest.raises(TypeError, match=r"headrace\.torch\.Loader\(stream=stream\)"):
            next(iter(DataLoader(stream)))
        rows = []
        for b in stream:
            rows.append(len(b))
            stream.step()
        assert rows == [10] * 10
        assert bool(stream)


def test_masks_and_numbers_are_still_numpys(agents: Agents) -> None:
    agents(total=10)
    with headrace.dataset("clicks").batches(10) as stream:
        b = next(stream)
        mask = torch.from_numpy(b.mask("dense"))
        assert mask.dtype is torch.bool
        assert np.array_equal(mask.numpy(), b.mask("dense"))
        stream.step()


def test_pad_repeats_rows_with_weight_0(agents: Agents) -> None:
    agents(total=50)
    with Loader("clicks", 20, tail="pad") as loader:
        batches = []
        for b in loader:
            batches.append(b)
            loader.step()
        assert [b.rows for b in batches] == [20, 20, 10]
        full, short = batches[0], batches[2]
        assert full["weight"].tolist() == [1.0] * 20
        assert full.batch is not None
        assert full["id"].data_ptr() == full.batch["id"].__array_interface__["data"][0]  # a view still
        assert short["weight"].tolist() == [1.0] * 10 + [0.0] * 10
        assert short["id"].tolist() == list(range(40, 50)) * 2
        assert short["dense"].shape == (20, 3)
        assert [row.tolist() for row in short["tags"]] == [[i] * (i % 4) for i in list(range(40, 50)) * 2]
        assert short["text"].tolist() == [f"r{i}" for i in list(range(40, 50)) * 2]
    with pytest.raises(ValueError, match="say loss_applies_weight=True"):
        refuse_pad(loader, False)
    refuse_pad(loader, True)
    refuse_pad(Loader("clicks", 20), False)
    with headrace.dataset("clicks").batches(20, tail="pad") as stream:
        with pytest.raises(ValueError, match="say loss_applies_weight=True"):
            refuse_pad(stream, False)
        assert Loader(stream=stream).tail == "pad"
        with pytest.raises(ValueError, match="belongs to the stream"):
            Loader(stream=stream, tail="pad")
    with pytest.raises(ValueError, match='tail=\'x\'; it is "short", "pad" or "drop"'):
        Loader("clicks", 20, tail="x")


def test_objects_show_what_they_are(agents: Agents) -> None:
    agents(total=20)
    loader = Loader("clicks", 10, tail="pad")
    assert repr(loader) == "Loader('clicks', 10 rows a batch, tail='pad', not opened yet)"
    stream = loader.stream
    assert repr(loader) == f"Loader({stream!r}, tail='pad')"
    assert repr(headrace.torch.Records(loader)) == f"Records({stream!r})"
    stream.close()
