"""Trains a small language model on Ray Train, with the rows of Headrace's rounds.

    headrace up --model replicated -f texts.yaml &
    python train.py config.yml

config.yml is the trainer's own file. It has the form of an axolotl file, with one section `headrace`.
Each worker takes its rank from Ray Train's context, and gets its rank's rounds: either all
workers get a batch, or none does. When a worker dies, Ray starts all of them again, and
they go on from the newest checkpoint. Each record is in the model once.

Beside its weights the model counts its records and adds up a hash of each id, so anybody
can check that no record is missing or in the model twice.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ray
import ray.train
import ray.train.torch
import yaml

WORDS, WIDTH = 256, 32


def worker(config: dict[str, Any]) -> None:
    """The program of each worker, which is one rank of the group."""
    import headrace
    import headrace.ray
    import headrace.torch
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    section = config["headrace"]
    headrace.ray.init(**{name: section[name] for name in ("job", "agent", "resume") if name in section})

    class LanguageModel(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(WORDS, WIDTH)
            self.next = nn.Linear(WIDTH, WORDS)
            self.register_buffer("records", torch.zeros((), dtype=torch.int64))
            self.register_buffer("checksum", torch.zeros((), dtype=torch.int64))

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.next(self.words(tokens))

    torch.set_num_threads(1)
    torch.manual_seed(config["seed"])
    model = LanguageModel()
    ddp = DistributedDataParallel(model, forward_sync_buffers=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["learning_rate"])

    loader = headrace.torch.Loader(section["dataset"], config["micro_batch_size"], max_wait=section["max_wait"])
    checkpoints = headrace.Checkpointer(config["output_dir"], loader.stream)
    step = 0
    restored = checkpoints.restore()  # every worker calls it
    if restored is not None:
        step = restored.step
        model.load_state_dict(restored.state["model"])
        optimizer.load_state_dict(restored.state["optimizer"])
    rank = dist.get_rank()
    print(f"rank {rank} begins at step {step} with {int(model.records)} records", flush=True)

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    for group in loader.groups(config["gradient_accumulation_steps"]):
        total = torch.zeros(3, dtype=torch.int64)  # of this rank: tokens, hash of its ids, loss in millionths
        for i, b in enumerate(group):
            ddp.require_backward_grad_sync = i == len(group) - 1  # all-reduce once a step
            column = b[section["column"]]
            # One row longer than the batch, so that a batch without rows still takes part in the step.
            tokens = nn.functional.pad(column.padded(fill=-100), (0, 2, 0, 1), value=-100)
            inputs, targets = tokens[:, :-1], tokens[:, 1:]
            logits = ddp(inputs.clamp(min=0))
            loss = nn.functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=-100, reduction="sum"
            )
            loss.backward()
            ids = b["id"]
            total += torch.stack([(targets >= 0).sum(), (ids * 7919 + ids * ids).sum(), (loss.detach() * 1e6).long()])
        dist.all_reduce(total)
        for p in model.parameters():  # DDP has divided the sum by the workers
            if p.grad is not None:
                p.grad *= dist.get_world_size() / max(int(total[0]), 1)
        optimizer.step()
        optimizer.zero_grad()
        model.records += sum(b.global_rows for b in group)  # rows of all workers, known without a collective
        model.checksum += total[1]
        step = loader.step(step + 1, batches=len(group))
        saved = checkpoints.save_every(config["save_steps"], step, state)  # every worker calls it; rank 0 writes
        if saved is not None and rank == 0:
            print(f"step {step} loss {int(total[2]) / 1e6 / max(int(total[0]), 1):.4f}", flush=True)
    checkpoints.close()  # it saves the last step, too
    loader.close()
    weights = float(sum(p.detach().double().sum() for p in model.parameters()))
    print(
        f"rank {rank} ends: step {step} records {int(model.records)} checksum {int(model.checksum)} "
        f"weights {weights:.9f}",
        flush=True,
    )
    headrace.shutdown()


def main() -> None:
    path = Path(sys.argv[1]).resolve()
    config = yaml.safe_load(path.read_text())
    config["output_dir"] = str(path.parent / config["output_dir"])  # each worker has a working folder of its own
    ray.init(num_cpus=config["ray_num_workers"] + 1, include_dashboard=False)
    trainer = ray.train.torch.TorchTrainer(
        worker,
        train_loop_config=config,
        torch_config=ray.train.torch.TorchConfig(backend="gloo"),
        scaling_config=ray.train.ScalingConfig(
            num_workers=config["ray_num_workers"], resources_per_worker=config["resources_per_worker"]
        ),
        run_config=ray.train.RunConfig(
            name="texts",
            storage_path=str(path.parent / "ray"),
            failure_config=ray.train.FailureConfig(max_failures=config["ray_max_failures"]),
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    main()
