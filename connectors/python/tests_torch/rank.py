"""A rank of a random history: DistributedDataParallel with stalls, that may kill itself."""

from __future__ import annotations

import datetime
import os
import random
import signal
import time

import headrace
import headrace.torch
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
rng = random.Random(f"{os.environ['SEED']} {rank}")
stall, every = float(os.environ["STALL"]), int(os.environ["EVERY"])
total = int(os.environ.get("TOTAL", 0))  # of an input without an end: how many records will come
victim, at, behind = (int(n) for n in os.environ["KILL"].split(","))

torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
model = torch.nn.Linear(3, 1)
sums = torch.zeros(2, dtype=torch.int64)  # records, and their ids hashed
ddp = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)

loader = headrace.torch.Loader("rows", 20, max_wait=0.5)
checkpoints = headrace.Checkpointer("checkpoints", loader.stream, keep=100)
restored = checkpoints.restore()
step = restored.step if restored else 0
if restored:
    model.load_state_dict(restored.state["model"])
    sums = restored.state["sums"]

for b in iter(()) if total and sums[0] == total else loader:
    if rng.random() < stall:
        time.sleep(rng.random() / 10)
    now = torch.stack([torch.tensor(b.rows), (b["id"] * 7919 + b["id"] * b["id"]).sum()])
    dist.all_reduce(now)
    optimizer.zero_grad()
    (ddp(b["dense"]).square().sum() * world / max(int(now[0]), 1)).backward()
    optimizer.step()
    sums += now
    step += 1
    dies = rank == victim and step == at
    if dies and not behind:
        os.kill(os.getpid(), signal.SIGKILL)
    loader.step(step)
    if dies:
        os.kill(os.getpid(), signal.SIGKILL)
    if step % every == 0:
        checkpoints.save(step, {"model": model.state_dict(), "sums": sums})
    if total and sums[0] == total:  # the same round on every rank
        break
if step and not (restored and restored.step == step):
    checkpoints.save(step, {"model": model.state_dict(), "sums": sums}).wait()
loader.close()
print("ends", step, sums.tolist(), model.weight.tolist(), model.bias.tolist(), flush=True)
dist.destroy_process_group()
