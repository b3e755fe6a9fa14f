"""Click-through rate with Hugging Face Accelerate: every record in the model once.

    headrace run --model replicated --nproc-per-node 2 --max-restarts 20 -f clicks.yaml -- python train.py

The ranks are Accelerate's: it wraps the model for DDP, and `save_state()` keeps the records
with the model. The Loader is not given to `prepare()`: each rank reads its part of each
round by itself, so either all ranks get a batch, or none does.

Beside its weights the model counts its records and adds up a hash of each. The last line shows
both, so anybody can check that each record is in the model once.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

import headrace
import headrace.torch
import torch
from accelerate import Accelerator
from torch import nn

BUCKETS, WIDTH = 4096, 8  # BUCKETS as in the spec


class ClickModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Embedding(BUCKETS, WIDTH)
        self.ad = nn.Embedding(BUCKETS, WIDTH)
        self.top = nn.Linear(2 * WIDTH + 3, 1)
        self.register_buffer("records", torch.zeros((), dtype=torch.int64))
        self.register_buffer("checksum", torch.zeros((), dtype=torch.int64))

    def forward(self, b: headrace.torch.TensorBatch) -> torch.Tensor:
        return self.top(torch.cat([self.user(b["user"]), self.ad(b["ad"]), b["dense"]], dim=1)).squeeze(1)


def mix(ids: torch.Tensor) -> torch.Tensor:
    """A hash of each id. The sum of the hashes shows whether a record is missing or there twice."""
    z = ids * -0x61C8864680B583EB
    return (z ^ (z >> 29)) * -0x40A7B892E31B1A47


def train(args: argparse.Namespace) -> None:
    accelerator = Accelerator(cpu=args.cpu)
    torch.manual_seed(1)
    model = ClickModel()
    loader = headrace.torch.Loader("clicks", args.rows, device=accelerator.device)
    ddp, optimizer = accelerator.prepare(model, torch.optim.Adam(model.parameters(), lr=0.01))  # not the loader
    accelerator.register_for_checkpointing(loader)

    folder = Path(args.dir)
    step = max((int(p.name[len("step-") :]) for p in folder.glob("step-*")), default=0)
    if step:
        accelerator.load_state(str(folder / f"step-{step}"))  # every rank calls it, before its first batch
    else:
        headrace.init(resume="start")
    print(f"rank {accelerator.process_index} begins after step {step} with {int(model.records)} records", flush=True)

    def save() -> None:
        """Every rank calls it, right after its step. The last thing is the rename, so `step-N` is complete."""
        accelerator.save_state(str(folder / f"new-{step}"))
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            (folder / f"new-{step}").rename(folder / f"step-{step}")
        accelerator.wait_for_everyone()

    saved = step
    for group in loader.groups(args.accumulate):
        rows = sum(b.global_rows for b in group)  # rows of all ranks
        checksum = torch.zeros((), dtype=torch.int64, device=accelerator.device)
        for i, b in enumerate(group):
            last = i == len(group) - 1
            with contextlib.nullcontext() if last else accelerator.no_sync(ddp):  # all-reduce once a step
                loss = nn.functional.binary_cross_entropy_with_logits(ddp(b), b["label"], reduction="sum")
                accelerator.backward(loss * accelerator.num_processes / max(rows, 1))
            checksum += mix(b["id"]).sum()
        optimizer.step()
        optimizer.zero_grad()
        model.records += rows
        model.checksum += accelerator.reduce(checksum, "sum")
        step += 1
        loader.step(step, batches=len(group))
        if step % args.every == 0:
            save()
            saved = step
    if step > saved:
        save()
    loader.close()
    weights = float(sum(p.detach().double().sum() for p in model.parameters()))
    print(
        f"rank {accelerator.process_index} ends: step {step} records {int(model.records)} "
        f"checksum {int(model.checksum)} weights {weights:.9f}",
        flush=True,
    )
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", default="checkpoints", help="folder of the checkpoints")
    parser.add_argument("--rows", type=int, default=256, help="rows of a batch")
    parser.add_argument("--accumulate", type=int, default=2, help="batches of a step, on each rank")
    parser.add_argument("--every", type=int, default=100, help="steps between checkpoints")
    parser.add_argument("--gpu", dest="cpu", action="store_false", help="train where Accelerate finds a GPU")
    train(parser.parse_args())
