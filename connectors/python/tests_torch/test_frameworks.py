"""Lightning, the Trainer of Hugging Face, Accelerate and distributed checkpoints: killed in
mid-pass and started again, each record is in the model once.

Each program is a process of its own, forked from one that has imported all frameworks.
The model adds up `id` and `id * id` in a buffer, so that a batch that was fetched and not
trained, or trained twice, shows.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forks import Zygote

N = 1970  # rows: 99 batches of 20. A step takes two batches, and the last step takes one

MODEL = """
import os, signal, sys, tempfile
tempfile.tempdir = None  # forget the folder of the process that this one was forked from
import headrace, headrace.torch, torch
from torch.utils.data import DataLoader

KILL = int(os.environ.get("KILL", 0))

class Sums(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(3, 1)
        self.register_buffer("sums", torch.zeros(3, dtype=torch.int64))

    def forward(self, id, dense, **more):
        self.sums += torch.stack([torch.tensor(len(id)), id.sum(), (id * id).sum()])
        return self.line(dense).square().sum()

    def stepped(self, step):
        if step == KILL:
            print("killed", flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
"""
LIGHTNING = (
    MODEL
    + """
import glob, logging, warnings
warnings.simplefilter("ignore")
import lightning
from lightning.pytorch.callbacks import ModelCheckpoint
from headrace.torch.lightning import HeadraceCallback

class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = Sums()

    def training_step(self, b, i):
        return self.net(**b)

    def on_train_batch_end(self, *args):
        self.net.stepped(self.trainer.global_step)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-6)

loader = headrace.torch.Loader("rows", 20)
newest = max(glob.glob("ckpt/*.ckpt"), key=lambda p: int(p.split("=")[1].split(".")[0]), default=None)
if newest is None:
    headrace.init(resume="start")
saves = ModelCheckpoint("ckpt", filename="{step}", every_n_train_steps=7, save_top_k=-1)
module = Module()
trainer = lightning.Trainer(
    max_epochs=1, accelerator="cpu", devices=1, accumulate_grad_batches=2, callbacks=[HeadraceCallback(loader), saves],
    logger=False, enable_progress_bar=False, enable_model_summary=False,
)
trainer.fit(module, DataLoader(loader, batch_size=None), ckpt_path=newest)
net = module.net
print("begun behind", newest, flush=True)
print("sums", net.sums.tolist(), "steps", trainer.global_step, "unstepped", loader.stream.unstepped, flush=True)
"""
)
TRANSFORMERS = (
    MODEL
    + """
import warnings
warnings.simplefilter("ignore")
from transformers import TrainingArguments, TrainerCallback
from headrace.torch.transformers import HeadraceCallback, HeadraceTrainer

class Loss(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = Sums()

    def forward(self, **b):
        return {"loss": self.net(**b)}

class Stepped(TrainerCallback):
    def on_optimizer_step(self, args, state, control, model, **more):
        model.net.stepped(state.global_step + 1)

loader = headrace.torch.Loader("rows", 20)
callback = HeadraceCallback(loader, "out")
arguments = TrainingArguments(
    "out", max_steps=49, gradient_accumulation_steps=2, ignore_data_skip=True, save_steps=7, use_cpu=True, report_to=[],
    disable_tqdm=True, logging_strategy="no", learning_rate=1e-6,
)
model = Loss()
begun = callback.restore()
trainer = HeadraceTrainer(model, arguments, train_dataset=loader, callbacks=[Stepped(), callback])
trainer.train(resume_from_checkpoint=begun)
net = model.net
print("begun behind", begun, flush=True)
print("sums", net.sums.tolist(), "steps", trainer.state.global_step, "unstepped", loader.stream.unstepped, flush=True)
"""
)
ACCELERATE = (
    MODEL
    + """
import glob
from accelerate import Accelerator

accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
loader = headrace.torch.Loader("rows", 20, device=accelerator.device)
model = Sums()
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=1e-6))  # not the loader
accelerator.register_for_checkpointing(loader)
newest = max(glob.glob("ckpt/*"), key=lambda p: int(p.split("-")[1]), default=None)
step = 0
if newest is None:
    headrace.init(resume="start")
else:
    accelerator.load_state(newest)
    step = int(newest.split("-")[1])
for group in loader.groups(2):
    for b in group:
        accelerator.backward(model(**b))
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    loader.step(step, batches=len(group))
    model.stepped(step)
    if step % 7 == 0:
        accelerator.save_state(f"ckpt/new-{step}")
        os.rename(f"ckpt/new-{step}", f"ckpt/step-{step}")
print("begun behind", newest, flush=True)
print("sums", model.sums.tolist(), "steps", step, "unstepped", loader.stream.unstepped, flush=True)
"""
)
DCP = (
    MODEL
    + """
import glob, warnings
warnings.simplefilter("ignore")
import torch.distributed.checkpoint as dcp

loader = headrace.torch.Loader("rows", 20)
model = Sums()
newest = max(glob.glob("ckpt/step-*"), key=lambda p: int(p.split("-")[1]), default=None)
step = 0
if newest is None:
    headrace.init(resume="start")
else:
    dcp.load({"model": model, "records": headrace.torch.Records(loader)}, checkpoint_id=newest)
    step = int(newest.split("-")[1])
for group in loader.groups(2):
    for b in group:
        model(**b)
    step += 1
    loader.step(step, batches=len(group))
    model.stepped(step)
    if step % 7 == 0:
        dcp.save({"model": model, "records": headrace.torch.Records(loader)}, checkpoint_id=f"ckpt/new-{step}")
        os.rename(f"ckpt/new-{step}", f"ckpt/step-{step}")
print("begun behind", newest, flush=True)
print("sums", model.sums.tolist(), "steps", step, "unstepped", loader.stream.unstepped, flush=True)
"""
)


def lives(job: Any, zygote: Zygote, program: str, n: int, **always: str) -> Callable[..., str]:
    """Starts a job with n rows. The result runs the program once, with the exit code that it must
    end with, and returns what it printed."""
    job.write(n)
    job.up("--model", "replicated")
    job.apply()
    work = job.folder / "work"
    work.mkdir()
    (work / "train.py").write_text(program)

    def run(code: int, **env: str) -> str:
        ended, text = zygote.run(work / "train.py", {**job.env, **always, **env}, work)
        assert ended == code, text + job.logs()
        return text

    return run


@pytest.mark.parametrize(
    ("program", "n"),
    # The Trainer of Hugging Face takes no step of fewer batches than it was told.
    [(LIGHTNING, N), (TRANSFORMERS, N - 10), (ACCELERATE, N), (DCP, N)],
    ids=["lightning", "transformers", "accelerate", "dcp"],
)
def test_killed_in_mid_pass_each_record_is_in_the_model_once(
    job: Any, rng: random.Random, zygote: Zygote, program: str, n: int
) -> None:
    run = lives(job, zygote, program, n)
    run(-signal.SIGKILL, KILL=str(rng.randint(8, 45)))
    text = run(0)
    assert "begun behind None" not in text, text
    ids = range(n)
    sums = f"sums {[len(ids), sum(ids), sum(i * i for i in ids)]} "
    assert sums in text, text + job.logs()
    assert "unstepped 0" in text, text


LIGHTNING_MEMORY = LIGHTNING.replace(
    """newest = max(glob.glob("ckpt/*.ckpt"), key=lambda p: int(p.split("=")[1].split(".")[0]), default=None)
if newest is None:
    headrace.init(resume="start")
saves = ModelCheckpoint("ckpt", filename="{step}", every_n_train_steps=7, save_top_k=-1)
""",
    """callback = HeadraceCallback(loader, "ckpt", memory_every=1, storage_every=5)
newest = callback.restore()
begun = callback._stream._trainer.last_step
print("went back:", begun, callback.restored_from, flush=True)
if os.environ.get("DIES"):
    os.kill(os.getpid(), signal.SIGKILL)
""",
).replace(
    "callbacks=[HeadraceCallback(loader), saves],\n    logger",
    "callbacks=[callback], enable_checkpointing=False,\n    logger",
)
TRANSFORMERS_MEMORY = (
    TRANSFORMERS.replace('(loader, "out")', '(loader, "out", memory_every=1, storage_every=5)')
    .replace("save_steps=7", 'save_strategy="no"')
    .replace(
        "begun = callback.restore()",
        """begun = callback.restore()
print("went back:", callback._stream._trainer.last_step, callback.restored_from, flush=True)
if os.environ.get("DIES"):
    os.kill(os.getpid(), signal.SIGKILL)""",
    )
)


@pytest.mark.parametrize(
    ("program", "n"), [(LIGHTNING_MEMORY, N), (TRANSFORMERS_MEMORY, N - 10)], ids=["lightning", "transformers"]
)
def test_from_memory_after_a_kill_and_from_storage_after_the_memory_is_lost(
    job: Any, rng: random.Random, zygote: Zygote, memory: Path, program: str, n: int
) -> None:
    """A killed trainer goes on from memory. Without its memory it goes on from storage.
    Each record is in the model once."""
    copies = job.folder / "tmp"
    copies.mkdir()
    run = lives(job, zygote, program, n, HEADRACE_MEMORY_DIR=str(memory), TMPDIR=str(copies))
    first, second = rng.randint(8, 20), rng.randint(28, 45)
    run(-signal.SIGKILL, KILL=str(first))
    run(-signal.SIGKILL, DIES="1")  # before its first step: it leaves what it had written for the framework
    assert len(list(copies.glob("headrace-*-restored-*"))) == 1
    text = run(-signal.SIGKILL, KILL=str(second))
    assert not list(copies.glob("headrace-*-restored-*"))
    at, source = text.split("went back: ")[1].split()[:2]
    assert source == "memory", text
    # While the older slot is on its way to storage, a save overwrites the newer one. If the kill tears
    # that save, only the older slot is left.
    assert (first - 2) // 5 * 5 <= int(at) <= first, text
    for folder in memory.iterdir():
        shutil.rmtree(folder)  # as if the node had been started again
    text = run(0)
    at, source = text.split("went back: ")[1].split()[:2]
    assert source == "storage", text
    # Each 5th step goes to storage. If its slot was used again before storage had time, a newer step goes.
    assert 5 <= int(at) <= second, text
    ids = range(n)
    whole = f"sums {[len(ids), sum(ids), sum(i * i for i in ids)]} "
    assert whole in text, text + job.logs()
    assert "unstepped 0" in text, text
    for folder in memory.iterdir():
        shutil.rmtree(folder)
    text = run(0)  # the end lies on storage, and nothing is left to train
    assert whole in text, text


# Two ranks of DDP. Each adds up the rows that both saw in a round, so both have the same sums.
LIGHTNING_DDP = (
    LIGHTNING_MEMORY.replace(
        "self.sums += torch.stack([torch.tensor(len(id)), id.sum(), (id * id).sum()])",
        "seen = torch.stack([torch.tensor(len(id)), id.sum(), (id * id).sum()])\n"
        "        torch.distributed.all_reduce(seen)\n"
        "        self.sums += seen",
    )
    .replace("devices=1,", 'devices=2, strategy="ddp",')
    .replace('print("sums"', 'print("weights", net.line.weight.tolist(), "end")\nprint("sums"')
    .replace(
        'KILL = int(os.environ.get("KILL", 0))',
        'KILL = int(os.environ["KILL"]) if os.environ.get("DYING") == os.environ["RANK"] else -1',
    )
)


def test_two_ranks_of_ddp_go_on_from_memory(job: Any, rng: random.Random, zygote: Zygote, memory: Path) -> None:
    """One rank is killed, and the group is started again. Both go back to the same save, in their
    memories. If storage has that one too, a rank whose slot was torn by the kill reads it there.
    Without the memories both go on from storage. Each record is in the model once."""
    n = N
    job.write(n)
    job.up("--model", "replicated")
    job.apply()
    (job.folder / "train.py").write_text(LIGHTNING_DDP)

    def run(kill: int = 0) -> list[str]:
        codes, texts = zygote.group(
            job, 2, job.folder / "train.py", KILL=str(kill), DYING=str(rng.randrange(2)),
            TORCHELASTIC_RUN_ID="t", LOCAL_WORLD_SIZE="2", GROUP_RANK="0", HEADRACE_MEMORY_DIR=str(memory),
        )  # fmt: skip
        assert (-signal.SIGKILL in codes) if kill else codes == [0, 0], "\n".join(texts) + job.logs()
        return texts

    def back(texts: list[str]) -> tuple[int, set[str]]:
        places = [text.split("went back: ")[1].split()[:2] for text in texts]
        assert len({at for at, _ in places}) == 1, "\n".join(texts) + job.logs()
        return int(places[0][0]), {source for _, source in places}

    first, second = rng.randint(6, 10), rng.randint(14, 22)
    run(first)
    at, sources = back(run(second))
    assert sources == {"memory"} or at % 5 == 0, (at, sources)
    assert (first - 2) // 5 * 5 <= at <= first
    for folder in memory.iterdir():
        shutil.rmtree(folder)
    texts = run()
    at, sources = back(texts)
    assert sources == {"storage"}
    assert 5 <= at <= second  # as above
    ids = range(n)
    whole = f"sums {[n, sum(ids), sum(i * i for i in ids)]} "
    for text in texts:
        assert whole in text, text + job.logs()
        assert "unstepped 0" in text, text
    assert len({text.split("weights ")[1].split(" end")[0] for text in texts}) == 1, texts


TO_ITS_END = TRANSFORMERS.replace("max_steps=49", "max_steps=1000").replace("save_steps=7", "save_steps=10")


def test_the_trainer_saves_the_last_step_of_data_that_ends_before_max_steps(job: Any, zygote: Zygote) -> None:
    run = lives(job, zygote, TO_ITS_END, N - 10, KILL="-1")
    text = run(0)
    assert "in no checkpoint" not in text, text
    audit = job.headrace("audit", str(job.folder / "work" / "out"), "-o", "json").stdout
    assert json.loads(audit)["datasets"][0]["records"]["rows"] == N - 10, audit
    text = run(0)
    assert "checkpoint-49" in text, text
    assert "steps 49" in text, text


# Two ranks of DDP, as LIGHTNING_DDP. A step takes one round: the last round is trained, too.
TRANSFORMERS_DDP = (
    TO_ITS_END.replace(
        "self.sums += torch.stack([torch.tensor(len(id)), id.sum(), (id * id).sum()])",
        "seen = torch.stack([torch.tensor(len(id)), id.sum(), (id * id).sum()])\n"
        "        torch.distributed.all_reduce(seen)\n"
        "        self.sums += seen",
    )
    .replace("gradient_accumulation_steps=2", 'ddp_backend="gloo"')
    .replace(
        'KILL = int(os.environ.get("KILL", 0))',
        'KILL = int(os.environ["KILL"]) if os.environ["DYING"] == os.environ["RANK"] else -1',
    )
    .replace('print("sums"', 'print("weights", net.line.weight.tolist(), "end")\nprint("sums"')
    # Both ranks write to one pipe, a line at a time.
    .replace(
        "import os,",
        'def print(*what, **more):\n    os.write(1, (" ".join(map(str, what)) + "\\n").encode())\n\nimport os,',
        1,
    )
)


def two_ranks_of_the_trainer(job: Any, rng: random.Random, run: Callable[[dict[str, str], bool], str]) -> None:
    """One rank is killed in mid-pass, and the group ends. Started again, both ranks go on after the
    same checkpoint. Each record is in the model once, on both.

    run(environment, whether a rank kills itself) runs the group and returns what it printed.
    """
    job.write(N)
    job.up("--model", "replicated")
    job.apply()
    (job.folder / "train.py").write_text(TRANSFORMERS_DDP)
    assert "killed" in run({"KILL": str(rng.randint(12, 40)), "DYING": str(rng.randrange(2))}, True)
    text = run({"KILL": "-1", "DYING": "0"}, False)
    begun = re.findall(r"begun behind (\S+)", text)
    assert len(begun) == 2, text
    assert begun[0] == begun[1] != "None", text
    whole = f"sums {[N, sum(range(N)), sum(i * i for i in range(N))]} "
    assert text.count(whole) == text.count("unstepped 0") == 2, text + job.logs()
    assert len(set(re.findall(r"weights (.*) end", text))) == 1, text
    audit = job.headrace("audit", str(job.folder / "out"), "-o", "json").stdout
    assert json.loads(audit)["datasets"][0]["records"]["rows"] == N, audit


def test_two_ranks_of_the_trainer_go_on_after_a_kill(job: Any, rng: random.Random, zygote: Zygote) -> None:
    def run(env: dict[str, str], killed: bool) -> str:
        codes, texts = zygote.group(job, 2, job.folder / "train.py", LOCAL_WORLD_SIZE="2", **env)
        text = "\n".join(texts)
        assert -signal.SIGKILL in codes if killed else codes == [0, 0], text + job.logs()
        return text

    two_ranks_of_the_trainer(job, rng, run)


def test_two_ranks_of_the_trainer_under_torchrun(job: Any, rng: random.Random) -> None:
    torchrun = [str(Path(sys.executable).parent / "torchrun"), "--standalone", "--local-addr", "127.0.0.1"]

    def run(env: dict[str, str], killed: bool) -> str:
        with (job.folder / "run.log").open("wb") as out:
            process = subprocess.Popen(
                [*torchrun, "--nproc-per-node", "2", "train.py"],
                cwd=job.folder, env={**job.env, **env}, stdout=out, stderr=out,
            )  # fmt: skip
        job.processes.append(process)
        process.wait(1500)
        text = (job.folder / "run.log").read_text()
        assert process.returncode == int(killed), text + job.logs()
        return text

    two_ranks_of_the_trainer(job, rng, run)


@pytest.mark.parametrize(
    ("program", "rows", "how"),
    [
        (LIGHTNING, 10, "call trainer.save_checkpoint(PATH) after fit()"),
        (ACCELERATE, 10, "with the state_dict() of the last step"),
        (DCP, 10, "call dcp.save() after the loop too"),
        (TRANSFORMERS.replace("save_steps=7", 'save_strategy="no"'), N - 10, "let the Trainer save"),
    ],
    ids=["lightning", "accelerate", "dcp", "transformers"],
)
def test_records_in_no_checkpoint_of_a_framework_are_counted_at_the_end(
    job: Any, zygote: Zygote, program: str, rows: int, how: str
) -> None:
    n = N - 10 if "Trainer" in how else N
    text = lives(job, zygote, program, n, KILL="-1")(0)
    (line,) = [line for line in text.splitlines() if "in no checkpoint" in line]
    assert f"{rows} records are in no checkpoint" in line, text
    assert how in line, text


@pytest.mark.parametrize("limit", [None, 1, 2])
def test_a_trainer_that_keeps_one_checkpoint_is_warned(limit: int | None, caplog: pytest.LogCaptureFixture) -> None:
    from headrace.torch.transformers import HeadraceCallback

    given = {"ignore_data_skip": True, "dataloader_num_workers": 0, "save_total_limit": limit}
    callback = HeadraceCallback.__new__(HeadraceCallback)
    callback._memory = False
    callback.on_train_begin(SimpleNamespace(**given), SimpleNamespace(global_step=0), None)
    assert ("Set save_total_limit=2 or more" in caplog.text) == (limit == 1)


def test_a_second_trainer_and_a_save_in_mid_batch_are_no_checkpoints_of_other_records(
    agents: Any, caplog: pytest.LogCaptureFixture
) -> None:
    from headrace.torch import Loader
    from headrace.torch.lightning import HeadraceCallback

    agents(model="private", total=400)
    loader = Loader("clicks", 10)
    callback, batches, trainer = HeadraceCallback(loader), iter(loader), SimpleNamespace(global_step=0)
    callback.on_train_start(trainer, None)
    checkpoint: dict[str, Any] = {}
    for step in (1, 2, 3):
        next(batches)
        trainer.global_step = step
        callback.on_save_checkpoint(trainer, None, checkpoint)  # the optimizer has stepped, and the batch has not ended
        assert checkpoint == {}
        assert f"step {step} is in its model, and the last whole batch was that of step {step - 1}" in caplog.text
        callback.on_train_batch_end(trainer)
    callback.on_save_checkpoint(trainer, None, checkpoint)
    assert checkpoint["headrace"]["step"] == 3
    callback.on_train_start(trainer, None)  # fit() again
    with pytest.raises(ValueError, match="this Trainer begins at step 0, and step 3 is in the model"):
        callback.on_train_start(SimpleNamespace(global_step=0), None)
