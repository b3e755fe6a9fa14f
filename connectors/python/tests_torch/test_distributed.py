"""Models that are spread over ranks: saved by 4 of them, restored by 4, 3 and 1."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import headrace.torch.distributed
import pytest
import torch
from forks import Zygote

RECORDS = 3_017
# The session is long, so that processes on a busy machine are not taken for lost.
PATIENT = ["--http", "off", "--session-ttl", "20s"]
PROGRAM = str(Path(__file__).parent / "fsdp.py")


@pytest.fixture
def prepared(job: Any) -> Any:
    """A job with RECORDS rows."""
    (job.folder / "rows.yaml").write_text(job.spec("rows"))
    job.write(RECORDS)
    return job


def run(job: Any, ranks: int, kill: str = "-1,0", killed: bool = False, **env: str) -> str:
    options = ["--model", "replicated", "--nproc-per-node", str(ranks), "--max-restarts", "0"]
    command = [job.binary, "run", *options, *PATIENT, "-f", "rows.yaml", "--", sys.executable, PROGRAM]
    env = {**job.env, "KILL": kill, **env}
    done = subprocess.run(command, cwd=job.folder, env=env, capture_output=True, text=True, timeout=1500)
    text = done.stdout + done.stderr
    assert (done.returncode != 0) == killed, text[-6000:] + job.logs()[-3000:]
    return text


def forked(job: Any, zygote: Zygote, ranks: int, kill: str, killed: bool) -> str:
    """Runs the group beside a running agent. Its ranks are forks."""
    codes, texts = zygote.group(job, ranks, Path(PROGRAM), KILL=kill)
    text = "\n".join(texts)
    assert -signal.SIGKILL in codes if killed else codes == [0] * ranks, text[-6000:] + job.logs()[-3000:]
    return text


def sums(text: str, word: str) -> dict[str, set[str]]:
    """What the ranks printed after `word`, by step."""
    said: dict[str, set[str]] = {}
    for step, values in re.findall(rf"{word} (\d+) (.*)", text):
        said.setdefault(step, set()).add(values)
    return said


def test_another_number_of_ranks_goes_on_with_the_same_model(prepared: Any, zygote: Zygote) -> None:
    """4 ranks are killed, then 3, then one rank reads to the end: the weights that each
    loads are those that were saved, and each record is in the model once."""
    prepared.up("--model", "replicated", "-f", str(prepared.folder / "rows.yaml"))
    saved: dict[str, set[str]] = {}
    for ranks, kill in ((4, "2,12"), (3, "1,22"), (1, "-1,0")):
        text = forked(prepared, zygote, ranks, kill, killed=kill != "-1,0")
        loaded = sums(text, "loads")
        assert len(loaded) == (ranks < 4), text
        for step, values in loaded.items():
            assert len(values) == 1, text
            assert values == saved[step], text
        saved |= sums(text, "saves")
    assert all(len(values) == 1 for values in saved.values()), saved
    ((_, records, ids),) = set(re.findall(r"ends (\d+) (\d+) (\d+)", text))
    assert (int(records), int(ids)) == (RECORDS, RECORDS * (RECORDS - 1) // 2), text


def test_the_same_ranks_go_on_from_memory_and_another_number_from_storage(prepared: Any, memory: Path) -> None:
    """Each step is saved in memory, every fifth also to storage. `headrace run` writes what
    lies in memory to storage when ranks were killed, so 3 ranks go on where 4 were killed."""
    saved: dict[str, set[str]] = {}
    lives = ((4, "2,12", None, 0), (4, "1,23", "memory", 11), (3, "1,34", "storage", 22), (1, "-1,0", "storage", 33))
    for ranks, kill, source, least in lives:
        killed = kill != "-1,0"
        text = run(prepared, ranks, kill, killed, MEMORY="1", HEADRACE_MEMORY_DIR=str(memory))
        loaded = sums(text, "loads")
        assert set(re.findall(r"from (\w+)$", text, re.MULTILINE)) == ({source} if source else set()), text
        for step, values in loaded.items():
            assert least <= int(step) <= least + 1, text
            assert len(values) == 1, text
            assert values == saved[step], text
        saved |= sums(text, "saves")
    assert all(len(values) == 1 for values in saved.values()), saved
    ((_, records, ids),) = set(re.findall(r"ends (\d+) (\d+) (\d+)", text))
    assert (int(records), int(ids)) == (RECORDS, RECORDS * (RECORDS - 1) // 2), text


def test_a_value_that_cannot_be_saved_and_a_checkpoint_of_another_kind_are_named(prepared: Any, zygote: Zygote) -> None:
    prepared.up("--model", "replicated")
    prepared.headrace("dataset", "apply", "-f", str(prepared.folder / "rows.yaml"))
    program = prepared.folder / "program.py"
    program.write_text(
        "import headrace, headrace.torch.distributed as d, numpy as np, torch\n"
        f"folder = {str(prepared.folder / 'c')!r}\n"
        'with headrace.dataset("rows").batches(20) as stream, headrace.Checkpointer(folder, stream) as ck:\n'
        "    next(stream); stream.step(1)\n"
        "    try:\n"
        '        d.save(ck, 1, {"w": torch.ones(3), "odd": object()})\n'
        "    except TypeError as error:\n"
        "        print(error)\n"
        '    ck.save(1, {"w": np.ones(3)}).wait()\n'
        "class R: state, path = {'w': 1}, 'c/step-1'\n"
        "try:\n"
        '    d.load(R, {"w": torch.ones(3)})\n'
        "except headrace.CheckpointError as error:\n"
        "    print(error)\n"
    )
    code, said = zygote.run(program, prepared.env, prepared.folder)
    assert code == 0, said
    assert "'values.odd' is a builtins.object" in said, said
    assert "c/step-1 was not saved by headrace.torch.distributed.save()" in said, said


def test_parts_are_named_after_their_tensor() -> None:
    name = headrace.torch.distributed._name
    assert name("w", (0, 0), (4, 3), torch.Size((4, 3))) == "w"
    assert name("w", (2, 0), (2, 3), torch.Size((4, 3))) == "w@2,0"
