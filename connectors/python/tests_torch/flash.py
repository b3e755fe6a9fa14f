"""A model with everything that a state of torch may have. It is saved in memory at each step. After a
kill it trains exactly like one that was never killed, but only if everything comes back."""

from __future__ import annotations

import hashlib
import os
import signal
from typing import Any

import torch

STEPS = 20


class Model:
    """Tied weights, batch norm's buffers, dropout (the generator's state), bf16 parameters, an fp8
    copy of one of them, and Adam's state."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(1)
        self.net = torch.nn.ModuleDict(
            {
                "in": torch.nn.Embedding(50, 8),
                "norm": torch.nn.BatchNorm1d(8),
                "dense": torch.nn.Linear(8, 8).bfloat16(),
                "out": torch.nn.Linear(8, 50, bias=False),
            }
        )
        self.net["out"].weight = self.net["in"].weight
        self.adam = torch.optim.Adam(self.net.parameters(), lr=0.01)
        self.fp8 = self.net["dense"].weight.detach().to(torch.float8_e4m3fn)

    def learn(self) -> None:
        ids = torch.randint(0, 50, (16,))
        x = self.net["norm"](self.net["in"](ids))
        x = self.net["dense"](torch.nn.functional.dropout(x, 0.3).bfloat16()).float()
        x = x + self.fp8.float().sum() * 0.01
        self.adam.zero_grad()
        torch.nn.functional.cross_entropy(self.net["out"](x), ids).backward()
        self.adam.step()
        self.fp8 = self.net["dense"].weight.detach().to(torch.float8_e4m3fn)

    def state(self) -> dict[str, Any]:
        return {
            "model": self.net.state_dict(),
            "adam": self.adam.state_dict(),
            "fp8": self.fp8,
            "rng": torch.get_rng_state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        assert state["model"]["in.weight"].data_ptr() == state["model"]["out.weight"].data_ptr(), "not tied"
        assert state["fp8"].dtype == torch.float8_e4m3fn
        assert state["model"]["dense.weight"].dtype == torch.bfloat16
        self.net.load_state_dict(state["model"])
        self.adam.load_state_dict(state["adam"])
        self.fp8 = state["fp8"].clone()
        torch.set_rng_state(state["rng"].clone())

    def tensors(self) -> list[torch.Tensor]:
        states = [t for of in self.adam.state.values() for t in of.values()]
        return [*self.net.state_dict().values(), *states]

    def digest(self) -> str:
        digest = hashlib.sha256()
        for tensor in (*self.tensors(), self.fp8, torch.get_rng_state()):
            digest.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def main() -> None:
    import headrace

    dies = int(os.environ["DIES"])
    model = Model()
    with (
        headrace.dataset("rows").batches(50) as stream,
        headrace.Checkpointer("checkpoints", stream, memory=True) as ck,
    ):
        restored = ck.restore()
        step = restored.step if restored is not None else 0
        if restored is not None:
            model.load(restored.state)
        print("restored", step, restored.source if restored is not None else "-", flush=True)
        del restored
        batches = iter(stream)
        while step < STEPS:
            next(batches)
            model.learn()
            step = stream.step(step + 1)
            saved = ck.save(step, model.state(), storage=step % 5 == 0)
            with torch.no_grad():
                before = [tensor.clone() for tensor in model.tensors()]
                for tensor in model.tensors():
                    tensor.zero_()  # if the save still reads them, zeros show in what is loaded
                saved.wait_memory()
                if step % 5 == 0:
                    saved.wait()
                for tensor, was in zip(model.tensors(), before):
                    tensor.copy_(was)
            if step == dies:
                os.kill(os.getpid(), signal.SIGKILL)
    print("end", step, model.digest(), flush=True)


if __name__ == "__main__":
    main()
