"""Click-through rate with DistributedDataParallel: every record in the model once.

    headrace up --model replicated -f clicks.yaml &
    torchrun --nproc-per-node 4 train.py

or, in one command,

    headrace run --model replicated --nproc-per-node 4 --max-restarts 20 -f clicks.yaml -- python train.py

Four batches are one step of the optimizer (gradient accumulation). Forward and backward
run in bfloat16. Every 200 steps it saves a checkpoint with the exact records that are in
it. Kill any process at any time: the group starts again from the newest checkpoint.

The batches come in rounds: either all ranks get a batch, or none does. A batch may have
fewer rows than asked, or none. So the gradient is scaled by the rows of all ranks
(`global_rows`), which Headrace knows without a collective.

Beside its weights the model counts its records and adds up a hash of each. The last line shows
both, so anybody can check that each record is in the model once.
"""

from __future__ import annotations

import argparse

import headrace
import headrace.torch
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

BUCKETS, WIDTH = 4096, 16  # BUCKETS as in the spec


class ClickModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.user = nn.Embedding(BUCKETS, WIDTH)
        self.ad = nn.Embedding(BUCKETS, WIDTH)
        self.seen = nn.EmbeddingBag(BUCKETS, WIDTH, mode="sum")
        self.top = nn.Sequential(nn.Linear(3 * WIDTH + 3, 32), nn.ReLU(), nn.Linear(32, 1))
        self.register_buffer("records", torch.zeros((), dtype=torch.int64))
        self.register_buffer("checksum", torch.zeros((), dtype=torch.int64))

    def forward(self, b: headrace.torch.TensorBatch) -> torch.Tensor:
        seen = self.seen(b["seen"].values, b["seen"].offsets[:-1])
        x = torch.cat([self.user(b["user"]), self.ad(b["ad"]), seen, b["dense"]], dim=1)
        return self.top(x).squeeze(1)


def mix(ids: torch.Tensor) -> torch.Tensor:
    """A hash of each id. The sum of the hashes shows whether a record is missing or there twice."""
    z = ids * -0x61C8864680B583EB
    return (z ^ (z >> 29)) * -0x40A7B892E31B1A47


def train(args: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = ClickModel()
    ddp = DistributedDataParallel(model, forward_sync_buffers=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)

    loader = headrace.torch.Loader("clicks", args.rows, max_wait=args.max_wait)
    checkpoints = headrace.Checkpointer(args.dir, loader.stream, keep=args.keep)
    step = 0
    restored = checkpoints.restore()  # every rank calls it
    if restored is not None:
        step = restored.step
        model.load_state_dict(restored.state["model"])
        optimizer.load_state_dict(restored.state["optimizer"])
    print(f"rank {dist.get_rank()} begins after step {step} with {int(model.records)} records", flush=True)

    def state() -> dict[str, object]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    for group in loader.groups(args.accumulate):
        rows = sum(b.global_rows for b in group)  # rows of all ranks
        total = torch.zeros(2, dtype=torch.int64)  # checksum, loss in millionths
        for i, b in enumerate(group):
            ddp.require_backward_grad_sync = i == len(group) - 1  # all-reduce once a step
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = ddp(b)
            loss = nn.functional.binary_cross_entropy_with_logits(logits.float(), b["label"], reduction="sum")
            loss.backward()
            total += torch.stack([mix(b["id"]).sum(), (loss.detach() * 1e6).long()])
        dist.all_reduce(total)
        for p in model.parameters():  # DDP has divided the sum by the ranks
            assert p.grad is not None
            p.grad *= dist.get_world_size() / max(rows, 1)
        optimizer.step()
        optimizer.zero_grad()
        model.records += rows
        model.checksum += total[0]
        step += 1
        loader.step(step, batches=len(group))
        saved = checkpoints.save_every(args.every, step, state)  # every rank calls it; rank 0 writes
        if saved is not None and dist.get_rank() == 0:
            print(f"step {step} loss {int(total[1]) / 1e6 / max(rows, 1):.4f}", flush=True)
    checkpoints.close()  # it saves the last step, too
    loader.close()
    weights = float(sum(p.detach().double().sum() for p in model.parameters()))
    print(
        f"rank {dist.get_rank()} ends: step {step} records {int(model.records)} "
        f"checksum {int(model.checksum)} weights {weights:.9f}",
        flush=True,
    )
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", default="checkpoints", help="folder of the checkpoints")
    parser.add_argument("--rows", type=int, default=256, help="rows of a batch")
    parser.add_argument("--accumulate", type=int, default=4, help="batches of a step, on each rank")
    parser.add_argument("--every", type=int, default=200, help="steps between two checkpoints")
    parser.add_argument("--keep", type=int, default=3, help="checkpoints to keep")
    parser.add_argument("--max-wait", type=float, default=2.0, help="seconds that a round waits for all its rows")
    train(parser.parse_args())
