"""A rank of a model that is spread over ranks by fully_shard, and that trains on rows."""

from __future__ import annotations

import os
import signal

import headrace
import headrace.torch
import headrace.torch.distributed
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
victim, at = (int(n) for n in os.environ["KILL"].split(","))

torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(3, 7), torch.nn.Linear(7, 5), torch.nn.Linear(5, 1))
for layer in model:
    fully_shard(layer, mesh=init_device_mesh("cpu", (world,)))
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
seen = torch.zeros(2, dtype=torch.int64)  # records, and the sum of their ids
model(torch.zeros(1, 3)).sum().backward()
optimizer.step()  # so that the optimizer has states

loader = headrace.torch.Loader("rows", 20, max_wait=0.5)
memory = os.environ.get("MEMORY") == "1"  # True: each step is saved in memory
ck = headrace.Checkpointer("checkpoints", loader.stream, sharded=True, keep=100, memory=memory)


def state() -> dict:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optimizer": moments, "seen": seen, "note": {"lr": 0.5, "name": "ü", "none": None}}


restored = ck.restore()
step = 0
if restored is not None:
    step, full = restored.step, state()
    full["note"] = {"lr": 0.0, "name": "", "none": 1}
    headrace.torch.distributed.load(restored, full)
    assert full["note"] == {"lr": 0.5, "name": "ü", "none": None}, full["note"]
    set_state_dict(model, optimizer, model_state_dict=full["model"], optim_state_dict=full["optimizer"])
    seen = full["seen"]
    print("from", restored.source, flush=True)
    print("loads", step, *(t.full_tensor().sum().item() for t in model.state_dict().values()), flush=True)

for b in loader:
    now = torch.stack([torch.tensor(b.rows), b["id"].sum()])
    dist.all_reduce(now)
    optimizer.zero_grad()
    model(b["dense"]).square().sum().backward()
    optimizer.step()
    seen += now
    step = loader.step(step + 1)
    if memory or step % 5 == 0:
        sums = [t.full_tensor().sum().item() for t in model.state_dict().values()]
        saved = headrace.torch.distributed.save(ck, step, state(), storage=step % 5 == 0)
        with torch.no_grad():
            for p in model.parameters():  # if the save still reads them, that shows in what is loaded
                p.add_(1.0)
                p.sub_(1.0)
        # Wait for storage, so that no slot is pinned. If one were, a kill during a later copy would lead
        # back to the pinned one, and the test expects a newer step.
        saved.wait() if step % 5 == 0 else saved.wait_memory()
        print("saves", step, *sums, flush=True)
    if rank == victim and step == at:
        os.kill(os.getpid(), signal.SIGKILL)
ck.close()
loader.close()
print("ends", step, *seen.tolist(), flush=True)
dist.destroy_process_group()
