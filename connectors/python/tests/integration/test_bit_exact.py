"""bit_exact: each step has the same batches, whatever the number of workers and whichever
process is killed. Tests compare the hash of every batch."""

from __future__ import annotations

from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import headrace
import pytest
from agent import poll
from integration.exact import Input, Runs
from integration.exact import run as run_plan

SHUFFLED = "shuffle: {seed: 42, block: 2KiB}\nbit_exact: {virtual_ranks: 8}\npasses: 2\n"
IN_ORDER = "bit_exact: {virtual_ranks: 8, block: 3000}\npasses: 2\n"


ROWS = 5000


def run(kind: Any, binary: str, folder: Path, more: str, plan: list[dict[str, Any]]) -> Runs:
    """Runs the plan on an input of files."""

    def prepare(job: Any) -> Input:
        job.write(ROWS)
        job.apply(more=more)
        segments = {}
        for path in job.data.glob("*.tsv"):
            lines = path.read_bytes().splitlines(keepends=True)
            first = int(lines[0].split(b"\t", 1)[0])
            offsets = list(accumulate(map(len, lines), initial=0))[:-1]
            segments[path.name] = offsets, range(first, first + len(lines))
        return Input(segments)

    return run_plan(kind, binary, folder, plan, prepare)


@pytest.mark.parametrize("more", [SHUFFLED, IN_ORDER], ids=["shuffled", "in_order"])
def test_the_batches_of_every_step_are_the_same_for_1_2_3_4_and_7_workers(
    job: Any, binary: str, folder: str, more: str
) -> None:
    first = run(type(job), binary, Path(folder) / "w1", more, [{"world": 1}]).hashes()
    assert len(first) > 20
    for world in (2, 3, 4, 7):
        assert run(type(job), binary, Path(folder) / f"w{world}", more, [{"world": world}]).hashes() == first, world


@pytest.mark.parametrize("more", [SHUFFLED, IN_ORDER], ids=["shuffled", "in_order"])
def test_kills_and_other_numbers_of_workers_behind_them_change_no_step(
    job: Any, binary: str, folder: str, more: str
) -> None:
    whole = run(type(job), binary, Path(folder) / "whole", more, [{"world": 3}])
    killed = run(
        type(job),
        binary,
        Path(folder) / "killed",
        more,
        [
            {"world": 3, "die": [1, 6, "before"]},
            {"world": 7, "die": [6, 10, "behind"]},
            {"world": 1, "die": [0, 13, "behind"]},
            {"world": 4, "die": [3, 19, "before"]},
            {"world": 2},
        ],
    )
    assert killed.hashes() == whole.hashes()
    assert killed.read > whole.read  # batches after the last checkpoint came again


def test_the_master_and_the_agent_may_be_killed_too(job: Any, binary: str, folder: str) -> None:
    def noted(journal: Path, batches: int) -> bool:
        return journal.exists() and journal.read_text().count("\n") > batches

    def killed(job: Any, journal: Path) -> None:
        for batches in (15, 60):
            poll(partial(noted, journal, batches))
            (up,) = [p for p in job.processes if p.args[1] == "up" and p.poll() is None]
            up.kill()
            up.wait()
            Path(job.socket).unlink()
            job.up("--model", "replicated")

    whole = run(type(job), binary, Path(folder) / "whole", SHUFFLED, [{"world": 2}])
    broken = run(
        type(job), binary, Path(folder) / "broken", SHUFFLED, [{"world": 2, "pause": 0.05, "meanwhile": killed}]
    )
    assert broken.hashes() == whole.hashes()
    assert broken.read == whole.read  # the trainers kept their batches, so none came twice


def test_what_does_not_go_with_bit_exact_is_refused(job: Any) -> None:
    job.write(100)
    job.up("--model", "replicated")
    job.apply(more=SHUFFLED)
    job.apply(name="plain")
    with pytest.raises(headrace.DatasetError, match=r"is bit_exact, with 8 virtual ranks.*steps\(10\)"):
        headrace.dataset("rows").batches(10)
    with pytest.raises(headrace.DatasetError, match="max_wait"):
        headrace.dataset("rows").batches(10, max_wait=1)
    with pytest.raises(headrace.DatasetError, match="is not bit_exact"):
        headrace.dataset("plain").steps(10)
    with headrace.dataset("rows").steps(10) as steps:
        assert steps.virtual_ranks == tuple(range(8))
        batches = next(steps)
        assert [b.virtual_rank for b in batches] == list(steps.virtual_ranks)[: len(batches)]
        with pytest.raises(ValueError, match=r"stream\.step"):
            batches[0].done()
        assert steps.unstepped == len(batches)
        assert steps.step() == 1
        assert steps.unstepped == 0
        assert steps.step() == 2  # nothing new: an idle rank
        with pytest.raises(ValueError, match="step 2 after step 2"):
            steps.step(2)
    headrace.shutdown()
    headrace.init(rank=0, world_size=9)
    with pytest.raises(ValueError, match="9 ranks read dataset 'rows', which has 8 virtual ranks"):
        headrace.dataset("rows").steps(10)
    headrace.shutdown()
    for more, why in {
        "order: strict": "bit_exact",
        "on_loss: continue": "on_loss",
        "bit_exact: {virtual_ranks: 0}": "1 to 1024",
    }.items():
        spec = job.folder / "bad.yaml"
        spec.write_text(job.spec("bad", more if "virtual" in more else f"{more}\nbit_exact: {{virtual_ranks: 4}}"))
        out = job.headrace("dataset", "check", "-f", str(spec), check=False)
        assert out.returncode != 0
        assert why in out.stderr, out.stderr
