"""Checkpoints in memory of a torch model: make test-torch."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path
from typing import Any

import flash
from forks import Zygote


def test_a_model_with_everything_goes_on_exactly_from_memory_and_from_storage(
    job: Any, zygote: Zygote, memory: Path
) -> None:
    """bf16, fp8, tied weights, buffers, the optimizer's state and the generator's: killed twice, once
    with its memory lost, it ends with the same bits as one that was never killed."""
    job.write(2000)
    job.up("--model", "replicated")
    job.apply()

    def life(dies: int) -> str:
        env = {**job.env, "HEADRACE_MEMORY_DIR": str(memory), "DIES": str(dies)}
        code, text = zygote.run(Path(flash.__file__), env, job.folder)
        assert code == (-signal.SIGKILL if dies else 0), text + job.logs()
        return text

    assert "restored 0 -" in life(7)
    assert "restored 7 memory" in (text := life(13)), text
    for folder in memory.iterdir():
        shutil.rmtree(folder)  # as if the node had been started again
    text = life(0)
    assert "restored 10 storage" in text, text
    model = flash.Model()
    for _ in range(flash.STEPS):
        model.learn()
    assert f"end {flash.STEPS} {model.digest()}" in text, text
