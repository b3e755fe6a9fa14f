"""Model and optimizer in files of their own, against the real agent: from memory, and sharded."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import headrace
import numpy as np
import pytest
from headrace import _manifest as manifest
from in_memory import memory
from safetensors.numpy import load_file

__all__ = ["memory"]  # a fixture


@pytest.mark.parametrize("deltas", [False, True])
@pytest.mark.parametrize("sharded", [False, True])
def test_a_checkpoint_in_memory_gets_a_file_for_each_part_on_storage(
    job: Any, memory: Path, tmp_path: Path, sharded: bool, deltas: bool
) -> None:
    n = job.write(6_000)
    job.up("--model", "replicated")
    job.apply()
    model: dict[str, Any] = {"w": np.zeros((n, 2)), "b": np.zeros(3)}
    moments = {"m": np.zeros((n, 2))}
    options: dict[str, Any] = {"memory": True, "sharded": sharded, "files": ["model", "optimizer"]}
    options["deltas"] = ["model.w", "optimizer.m"] if deltas else []
    paths = []
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path / "c", stream, **options) as ck:
        for count in range(1, 14):
            ids = next(stream)["id"]
            model["w"][ids] += 1
            moments["m"][ids] = count
            model["b"] += 1
            for table in options["deltas"]:
                ck.touch(table, ids)
            step = stream.step()
            whole = {"model": model, "optimizer": moments, "step": count}
            if count in (4, 8, 12):
                paths.append(ck.save(step, whole).wait(300))
                assert np.array_equal(headrace.load(paths[-1])["model"]["w"], model["w"])
                assert np.array_equal(headrace.load(paths[-1])["optimizer"]["m"], moments["m"])
        ck.save(step, whole, storage=False).wait_memory(60)
    rank = "-rank-0" if sharded else ""
    names = {name for name in os.listdir(paths[-1]) if name.endswith(".safetensors")}
    assert {f"model{rank}.safetensors", f"optimizer{rank}.safetensors"} <= names
    keys = set(load_file(os.path.join(paths[-1], f"model{rank}.safetensors")))
    assert keys == ({"w", "w.rows", "b"} if deltas else {"w", "b"})
    assert bool(manifest.load(os.path.join(paths[-1], manifest.FILE_NAME)).needs) == deltas
    os.unlink(os.path.join(paths[-1], f"optimizer{rank}.safetensors"))
    if not deltas:
        assert set(headrace.load(paths[-1], only=["model"])) == {"model", "step"}
    assert job.headrace("ckpt", "verify", os.path.join(paths[0], manifest.FILE_NAME)).returncode == 0
    headrace.shutdown()
    with headrace.dataset("rows").batches(50) as stream, headrace.Checkpointer(tmp_path / "c", stream, **options) as ck:
        restored = ck.restore(only=["model"])
        assert restored is not None
        assert (restored.source, restored.step) == ("memory", 13)
        assert set(restored.state) == {"model", "step"}
        assert np.array_equal(restored.state["model"]["w"], model["w"])
