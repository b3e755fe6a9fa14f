"""Checkpoints in memory where there is too little room for them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_memory import ROOT, TRAINER, memory, of_end, restored
from seen import checked, settings

__all__ = ["memory"]  # a fixture


def test_too_little_room_is_told_once_and_storage_goes_on(job: Any, memory: Path) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    code = TRAINER.replace("saved.wait_memory()", "pass").replace(
        "cfg = json", "from headrace import _slots; import errno\n"
        "def no_room(path, more): raise OSError(errno.ENOSPC, 'No space left on device', path)\n"
        "_slots._affordable = no_room\ncfg = json"
    )  # fmt: skip
    out = job.trainer(code, **settings(job, n, every=5), **{ROOT: str(memory)}).ended()
    assert out.count("checkpoints stay on storage only") == 1, out
    assert f"in {memory}" in out, out
    assert "--shm-size" in out, out
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    assert checked(job, n) > 0


@pytest.fixture
def small(memory: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A tmpfs of so many KiB. Mounting it needs root."""
    if os.getuid() != 0:
        pytest.fail("this test mounts a tmpfs: run it as root", pytrace=False)
    folder = memory / "small"
    folder.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={request.param}k,mode=700", "none", folder], check=True)
    monkeypatch.setenv(ROOT, str(folder))
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("small", [1024, 2048], indirect=True, ids=["no-slot", "one-slot"])
def test_a_full_tmpfs_is_told_once_and_storage_goes_on(job: Any, small: Path) -> None:
    n = job.write(3000)
    job.up("--model", "replicated")
    job.apply()
    env = {ROOT: str(small)}
    code = TRAINER.replace("saved.wait_memory()", "pass")
    out = job.trainer(code, **settings(job, n, every=5, stop=32), **env).ended()
    assert out.count("checkpoints stay on storage only") == 1, out
    assert f"in {small}" in out, out
    assert "No space left on device" in out, out
    assert checked(job, n) > 0
    out = job.trainer(code, **settings(job, n, every=5), **env).ended()
    assert int(restored(out)[1]) >= 25, out + job.logs()
    assert restored(out)[3] == "storage", out + job.logs()
    assert np.array_equal(of_end(out), np.ones(n)), out + job.logs()
    assert checked(job, n) > 0
