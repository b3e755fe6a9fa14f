"""A callback for the Trainer of Hugging Face: what was trained is stepped, and its
checkpoints are bound to their records.

    from transformers import TrainingArguments
    from headrace.torch import Loader
    from headrace.torch.transformers import HeadraceCallback, HeadraceTrainer

    loader = Loader("clicks", 1024)
    callback = HeadraceCallback(loader, "out")
    arguments = TrainingArguments("out", max_steps=..., ignore_data_skip=True)
    trainer = HeadraceTrainer(model, arguments, train_dataset=loader, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.restore())

With checkpoints in memory, after each step:

    callback = HeadraceCallback(loader, "out", memory_every=1)
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import random
from typing import Any

import numpy as np
import torch.distributed
import torch.utils.data
from headrace._stream import Stream
from safetensors.torch import save_file
from transformers import Trainer, TrainerCallback

from ._flash import Flash
from ._loader import Loader, refuse_pad

log = logging.getLogger("headrace")


class HeadraceTrainer(Trainer):
    """A Trainer that takes the batches of a Loader as they are.

    The Trainer of Hugging Face would cut the batches again, and with several processes
    have rank 0 read for all of them. `per_device_train_batch_size` has no effect here.
    """

    def get_train_dataloader(self) -> Any:
        """The Loader as a DataLoader of whole batches."""
        if isinstance(self.train_dataset, Loader):
            return torch.utils.data.DataLoader(self.train_dataset, batch_size=None)
        return super().get_train_dataloader()


class HeadraceCallback(TrainerCallback):
    """Says after each optimizer step which batches are in the model, and binds each
    checkpoint that the Trainer writes below `dir` to the records that are in it.

    The Trainer fetches all batches of an optimizer step before it trains the first one.
    So the callback counts the batches that were trained, and steps that many. The step is
    `state.global_step`.

    restore() before train(): it gives the newest checkpoint that is whole, with its
    records, for ``train(resume_from_checkpoint=...)``. A checkpoint that was written and
    not bound, because the process was killed between, does not count.

    memory_every: after every so many steps, model, optimizer, scheduler, the Trainer's state
    and the generators' are copied into memory (docs/FLASH.md). restore() takes the newest
    that all ranks hold, there or in `dir`. storage_every: every so many steps such a copy
    goes to `dir` too, beside what the Trainer writes; 0: only when training ends. DeepSpeed
    and FSDP are not saved in memory.
    """

    def __init__(
        self,
        stream: Stream | Loader,
        dir: str | os.PathLike[str],
        *,
        memory_every: int = 0,
        storage_every: int = 0,
        loss_applies_weight: bool = False,
    ) -> None:
        refuse_pad(stream, loss_applies_weight)
        self._stream = stream.stream if isinstance(stream, Loader) else stream
        self._flash = Flash(self._stream, dir, memory_every, storage_every)
        self._checkpoints = self._flash.checkpointer
        self._memory = memory_every > 0
        self._trained = 0
        self._begun = 0  # the step of the checkpoint that it went on from
        self._saved = 0  # the step of the newest folder that the Trainer has written
        self._checkpoints._covered.how = (
            'let the Trainer save: TrainingArguments(save_strategy="steps", save_steps=...)'
        )

    def restore(self) -> str | None:
        """Goes back to the newest checkpoint: its folder, or None. Every rank calls it."""
        return self._flash.restore(self._write)

    @property
    def restored_from(self) -> str:
        """Where restore() found the checkpoint: "memory", "peer" (the memory of another node) or
        "storage"; "": there was none."""
        return self._flash.source

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Refuses settings with which the Trainer would train other records than it says."""
        self._trained, self._begun = 0, state.global_step
        if state.global_step and not args.ignore_data_skip:
            raise ValueError(
                "set ignore_data_skip=True in TrainingArguments: the stream goes on after the records of the "
                "checkpoint, and the Trainer would skip as many batches again"
            )
        if args.dataloader_num_workers:
            raise ValueError("set dataloader_num_workers=0: the agent reads and decodes in a process of its own")
        if args.save_total_limit == 1:
            log.warning(
                "save_total_limit=1: the Trainer removes the only checkpoint before the new one is bound to its "
                "records, and a process that is killed in between leaves none. Set save_total_limit=2 or more"
            )
        if self._memory and (args.deepspeed or args.fsdp):
            raise ValueError("set memory_every=0: with DeepSpeed and FSDP each rank has only a part of the model")

    def on_substep_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """A batch of gradient accumulation was trained."""
        self._trained += 1

    def on_step_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Steps what the optimizer has taken in."""
        self._stream.step(state.global_step, batches=self._trained + 1)
        self._trained = 0
        self._flash.stepped(state.global_step, lambda: _state_of(state, **more))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **more: Any) -> Any:
        """The data has ended, perhaps before max_steps: has the Trainer save the last steps too."""
        if args.save_strategy != "no" and state.global_step > max(self._saved, self._begun):
            control.should_save = True
        return control

    def on_train_end(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """With memory_every, saves the end on storage."""
        if state.global_step:
            self._flash.ended(state.global_step, lambda: _state_of(state, **more))

    def _write(self, state: Any, folder: str) -> str:
        """Writes a state as the Trainer writes its checkpoints."""
        world = torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1
        generators = "rng_state.pth" if world == 1 else f"rng_state_{self._stream._trainer.rank}.pth"
        # A file of safetensors has each array once: tied weights are written out.
        save_file({k: v.clone() for k, v in state["model"].items()}, os.path.join(folder, "model.safetensors"))
        torch.save(state["optimizer"], os.path.join(folder, "optimizer.pt"))
        torch.save(state["scheduler"], os.path.join(folder, "scheduler.pt"))
        torch.save(_generators_of(state["generators"]), os.path.join(folder, generators))
        with open(os.path.join(folder, "trainer_state.json"), "w") as f:
            f.write(state["trainer"])
        return folder

    def on_save(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Binds the folder that was just written. All ranks wait for the cut; the first one binds."""
        folder = os.path.join(args.output_dir, f"checkpoint-{state.global_step}")
        cut = self._checkpoints.cut(state.global_step)
        if torch.distributed.is_initialized():
            torch.distributed.barrier()  # other ranks may still write files of theirs
        if self._stream._trainer.rank == 0:
            self._checkpoints.bind(cut, folder)
        else:
            self._checkpoints._covered.bound(state.global_step)
        self._saved = state.global_step


def _state_of(state: Any, model: Any, optimizer: Any, lr_scheduler: Any, **_: Any) -> dict[str, Any]:
    version, numbers, gauss = random.getstate()
    of_numpy: Any = np.random.get_state(legacy=True)  # noqa: NPY002
    kind, keys, at, has, cached = of_numpy
    generators = {
        "python": [version, np.array(numbers, np.int64), gauss],
        "numpy": [kind, keys.astype(np.int64), at, has, cached],
        "cpu": torch.random.get_rng_state(),
    }
    if torch.cuda.is_available():
        several = torch.distributed.is_initialized()
        generators["cuda"] = torch.cuda.random.get_rng_state_all() if several else torch.cuda.random.get_rng_state()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": lr_scheduler.state_dict(),
        "trainer": json.dumps(dataclasses.asdict(state)),
        "generators": generators,
    }


def _generators_of(saved: dict[str, Any]) -> dict[str, Any]:
    version, numbers, gauss = saved["python"]
    kind, keys, at, has, cached = saved["numpy"]
    return {
        **saved,
        "python": (version, tuple(int(n) for n in numbers), gauss),
        "numpy": (kind, np.asarray(keys).astype(np.uint32), at, has, cached),
    }
