"""examples/ddp_clicks, accelerate_clicks and the page's program: a rank is killed, the group starts
again, and each record is in the model once. The ranks are forks, which start at once. Where a test
says so, each rank is a process that imports torch."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import saved
import topic
import torch
from forks import Zygote

HERE = Path(__file__).parent
EXAMPLE = HERE.parents[2] / "examples" / "ddp_clicks"
RECORDS, EVERY = 9_137, 3  # steps of 1,024 records in most tests


def arguments(every: int = EVERY, rows: int = 64) -> list[str]:
    return ["--rows", str(rows), "--every", str(every), "--keep", "1000"]


def module(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


@pytest.fixture
def prepared(job: Any, rng: random.Random) -> Any:
    """A job whose data and spec are there, and whose environment kills a rank once."""
    (job.folder / "clicks.yaml").write_text((EXAMPLE / "clicks.yaml").read_text())
    for f in range(4):
        lines = module("make_log").lines(f, RECORDS, 4)
        (job.data / f"part-{f}.tsv").write_text("".join(lines))
    job.env.update(KILL=f"{rng.randrange(4)},{rng.randint(4, 7)}", KILLED=rng.choice(["before", "behind"]))
    return job


def run(job: Any, *command: str, code: int = 0) -> str:
    log = job.folder / "run.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=job.folder, env=job.env, stdout=out, stderr=out)
        job.processes.append(process)
        process.wait(1500)
    text = log.read_text()
    assert process.returncode == code, text[-6000:] + job.logs()[-6000:]
    return text


def forked(job: Any, zygote: Zygote, world: int, train: Path, *args: str) -> str:
    """Starts the group beside a running agent, as any launcher does, and again after a rank was
    killed. Returns what all ranks have printed."""
    program = str(HERE / "killed.py")
    codes, texts = zygote.group(job, world, Path(program), str(train), *args, HEADRACE_ATTEMPT="0")
    assert -signal.SIGKILL in codes, "\n".join(texts) + job.logs()[-6000:]
    codes, again = zygote.group(job, world, Path(program), str(train), *args, HEADRACE_ATTEMPT="1")
    assert codes == [0] * world, "\n".join(again) + job.logs()[-6000:]
    return "\n".join(texts + again)


def judge(job: Any, text: str, ranks: int = 4, every: int = EVERY, over_kafka: bool = False) -> None:
    """Checks that all ranks ended with the same model, which has each record once. The same must hold
    for every checkpoint: its ids are read from the files, by the ranges of its audit."""
    ids = torch.arange(RECORDS)
    want = (str(RECORDS), str(int(module("train").mix(ids).sum())))
    ends = re.findall(r"rank (\d) ends: step (\d+) records (\d+) checksum (-?\d+) weights (\S+)", text)
    assert sorted(e[0] for e in ends) == [str(r) for r in range(ranks)], text
    assert len({e[1:] for e in ends}) == 1, text
    assert ends[0][2:4] == want, text
    assert "is killed" in text
    begun = [int(n) for n in re.findall(r"begins after step (\d+)", text)]
    assert len(begun) == 2 * ranks, text
    assert min(begun[ranks:]) == max(begun[ranks:]) >= every, text
    folders = saved.whole(job.folder / "checkpoints")
    assert len(folders) > 2
    assert folders[-1].name.startswith(f"step-{int(ends[0][1]):010d}-"), folders
    for folder in folders:
        # A step that was saved already is not saved again at the end.
        assert [p.name for p in folder.glob("*.safetensors")] == ["state.safetensors"], folder
        cut = json.loads(job.headrace("audit", str(folder), "-o", "json").stdout)
        state = saved.state(folder)
        assert int(state["model.records"]) == cut["datasets"][0]["records"]["rows"], folder
        if not over_kafka:
            ids = torch.tensor(saved.ids(job.data, cut))
            assert len(ids) == int(state["model.records"]), folder
            assert int(module("train").mix(ids).sum()) == int(state["model.checksum"]), folder


def of_two(job: Any) -> None:
    """The rank that is killed is one of two."""
    job.env["KILL"] = re.sub(r"^\d", lambda m: str(int(m[0]) % 2), job.env["KILL"])


def up(job: Any, spec: str = "clicks.yaml") -> None:
    job.up("--model", "replicated", "-f", str(job.folder / spec))


def test_four_ranks_accumulate_gradients(prepared: Any, zygote: Zygote) -> None:
    up(prepared)
    judge(prepared, forked(prepared, zygote, 4, EXAMPLE / "train.py", *arguments()))


def test_under_torchrun_beside_an_agent(prepared: Any, zygote: Zygote) -> None:
    """torchrun is started twice: the first one ends with the rank that is killed. The ranks of the
    second one import torch. Each step is saved, so also the last one, whatever its number."""
    of_two(prepared)
    up(prepared)
    torchrun = str(Path(sys.executable).parent / "torchrun")
    command = [torchrun, "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node", "2"]
    program = [str(EXAMPLE / "train.py"), *arguments(every=1, rows=128)]
    text = run(prepared, *command, "--no-python", *zygote.command(str(HERE / "killed.py"), *program), code=1)
    judge(prepared, text + run(prepared, *command, *program), ranks=2, every=1)


def test_two_ranks_from_a_topic(prepared: Any, zygote: Zygote) -> None:
    of_two(prepared)
    spec = (EXAMPLE / "kafka.yaml").read_text()
    with topic.kafka(prepared.folder, "".join(module("make_log").lines(0, RECORDS))) as address:
        (prepared.folder / "kafka.yaml").write_text(spec.replace("127.0.0.1:9092", address))
        up(prepared, "kafka.yaml")
        judge(
            prepared, forked(prepared, zygote, 2, EXAMPLE / "train.py", *arguments(rows=128)), ranks=2, over_kafka=True
        )


def test_accelerate(prepared: Any, zygote: Zygote) -> None:
    """Two ranks. One of them is killed once, and all go back to Accelerate's newest checkpoint."""
    train = EXAMPLE.parent / "accelerate_clicks" / "train.py"
    (prepared.folder / "clicks.yaml").write_text((train.parent / "clicks.yaml").read_text())
    of_two(prepared)
    up(prepared)
    prepared.env["SAVED"] = "checkpoints/step-*/random_states_0.pkl"
    text = forked(prepared, zygote, 2, train, "--rows", "128", "--every", str(EVERY))
    assert "is killed" in text
    begun = [int(n) for n in re.findall(r"begins after step (\d+)", text)]
    assert len(begun) == 4, text
    assert begun[2] == begun[3] >= EVERY, text
    ends = re.findall(r"rank (\d) ends: step (\d+) records (\d+) checksum (-?\d+) weights (\S+)", text)
    assert sorted(e[0] for e in ends) == ["0", "1"], text
    assert ends[0][1:] == ends[1][1:], text
    assert ends[0][2:4] == (str(RECORDS), str(int(module("train").mix(torch.arange(RECORDS)).sum()))), text


PAGE = (HERE.parents[2] / "docs" / "torch.md").read_text()
ROWS = 440_000  # of the page: 215 steps of two ranks with 1,024 records each, and some more


def test_the_pages_ddp_program_has_each_record_once(job: Any, rng: random.Random, zygote: Zygote) -> None:
    """As it is printed, under `headrace run`, with two ranks. One of them is killed after step 200,
    which is saved. The group goes on there and saves its last step. Started again, with one rank that
    imports torch, it saves nothing: the last step is saved once."""
    (text,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (job.folder / "page.py").write_text(text)
    (job.folder / "clicks.yaml").write_text((EXAMPLE / "clicks.yaml").read_text())
    for f in range(4):
        lines = (f"{i}\t{i % 2}\t0.{i % 7}\t0.{i % 5}\t0.5\tu{i % 900}\t{i % 400}\t1\n" for i in range(f, ROWS, 4))
        (job.data / f"part-{f}.tsv").write_text("".join(lines))
    job.env.update(KILL=f"{rng.randrange(2)},{rng.randint(201, 210)}", KILLED=rng.choice(["before", "behind"]))
    # The session is long, so that processes on a busy machine are not taken for lost.
    patient = ["--http", "off", "--session-ttl", "20s"]
    options = ["--model", "replicated", "--max-restarts", "3", *patient, "-f", "clicks.yaml"]
    program = [str(HERE / "killed.py"), "page.py"]
    forks = ["--nproc-per-node", "2", *options, "--", *zygote.command(*program)]
    assert "is killed" in run(job, job.binary, "run", *forks)
    first, last = saved.whole(job.folder / "checkpoints")
    assert first.name.startswith("step-0000000200-"), first
    audit = json.loads(job.headrace("audit", str(last), "-o", "json").stdout)
    assert audit["datasets"][0]["records"]["rows"] == ROWS, audit
    job.env["KILL"] = "0,-1"
    run(job, job.binary, "run", *options, "--", sys.executable, *program)
    assert saved.whole(job.folder / "checkpoints") == [first, last]
    assert [p.name for p in last.glob("*.safetensors")] == ["state.safetensors"], last
