"""One trainer that measures its own saves. bench.py starts it, and then again to measure the
restore."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import subprocess
import sys
import threading
import time
from typing import Any

import headrace
import numpy as np

cfg = json.loads(os.environ["BENCH"])


def tensors(count: int, size: int) -> dict[str, np.ndarray]:
    each = size // count // 4
    return {f"layer.{i}.weight": np.full(each, i + 1, np.float32) for i in range(count)}


def copy(into: dict[str, np.ndarray], state: dict[str, np.ndarray]) -> float:
    began = time.perf_counter()
    for name, array in state.items():
        np.copyto(into[name], array)
    return time.perf_counter() - began


def rates(seconds: float, until: Any = None) -> float:
    """Multiplications of matrices per second."""
    a = np.ones((256, 256), np.float32)
    n, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds if until is None else not until():
        a @ a
        n += 1
    return n / (time.perf_counter() - began)


def main() -> None:
    with headrace.dataset("rows").batches(10) as stream:
        ck = headrace.Checkpointer(cfg["dir"], stream, memory=True)
        if os.environ["HEADRACE_ATTEMPT"] != "0":
            restore(ck)
            return
        ck.restore()
        state = tensors(cfg["tensors"], cfg["bytes"])
        size = sum(a.nbytes for a in state.values())
        floor = {name: np.zeros_like(a) for name, a in state.items()}
        copy(floor, state)
        copy(floor, state)
        ck.prepare(state)
        ck._flash.memory.warmed()
        step = 0
        found: dict[str, Any] = {
            "bytes": size,
            "tensors": len(state),
            "floor": [],
            "save": [],
            "persist": [],
            "dd": [],
            "rate": [],
        }

        def save(storage: bool) -> tuple[float, headrace.Saved]:
            nonlocal step
            next(stream)
            step = stream.step(step + 1)
            for name in list(state)[:: max(1, len(state) // 8)]:
                state[name][:1000] = step
            began = time.perf_counter()
            saved = ck.save(step, state, storage=storage)
            took = time.perf_counter() - began
            for name in list(state)[:: max(1, len(state) // 8)]:
                state[name][:1000] = -1  # if the save were not a copy, this would change the checkpoint
            saved.wait_memory()
            return took, saved

        first, _ = save(False)
        found["first"] = first / copy(floor, state)
        for i in range(cfg["rounds"]):  # ABBA
            pair = [("floor", lambda: copy(floor, state)), ("save", lambda: save(False)[0])]
            for name, run in pair if i % 2 == 0 else pair[::-1]:
                found[name].append(run())
        for i in range(cfg["persists"]):
            began = time.perf_counter()
            took, saved = save(True)
            begun = time.perf_counter()
            found["rate"].append({"persist": rates(0, lambda saved=saved: saved.done)})
            saved.wait()
            found["persist"].append(time.perf_counter() - began - took if i % 2 else time.perf_counter() - begun)
            found["rate"][-1]["alone"] = rates(max(0.5, found["persist"][-1]))
            found["dd"].append(dd(saved.memory, size))
        if cfg["rivals"]:
            with Rivals(state) as rivals:
                others = rivals.ways()
                for i in range(cfg["rivals"]):
                    turns = [("ours", lambda: save(False)[0]), *others]
                    for name, run in turns if i % 2 == 0 else turns[::-1]:
                        found.setdefault("rivals", {}).setdefault(name, []).append(run())
        save(False)
        with open(cfg["out"], "w") as file:
            json.dump(found, file)
        print("killed now", step, flush=True)
        os.kill(os.getpid(), 9)


class Rivals:
    """How long torch blocks the trainer when it saves the same tensors: by torch.save and
    fsync, and by DCP's async_save. A save in the background ends before the next turn begins.
    If HEADRACE_DLROVER names the folder in which dlrover is installed, its save to memory is
    measured too."""

    def __init__(self, state: dict[str, np.ndarray]) -> None:
        import torch
        import torch.distributed as dist
        import torch.distributed.checkpoint as dcp

        torch.set_num_threads(1)
        self.torch, self.dist, self.dcp = torch, dist, dcp
        self.state = {name: torch.from_numpy(array) for name, array in state.items()}
        self.folder = os.path.join(cfg["dir"], "rivals")
        self.dlrover: Any = None
        self.step = 0

    def __enter__(self) -> Rivals:
        os.makedirs(self.folder)
        self.dist.init_process_group("gloo", init_method=f"file://{self.folder}/group", rank=0, world_size=1)
        return self

    def __exit__(self, *_: object) -> None:
        if self.dlrover is not None:
            self.dlrover._engine.saver_proc.kill()
            shutil.rmtree("/tmp/ckpt_sock", ignore_errors=True)  # else the next process would wait for this socket
        self.dist.destroy_process_group()

    def ways(self) -> list[tuple[str, Any]]:
        ways: list[tuple[str, Any]] = [("torch_save", self.whole), ("dcp_async_save", self.behind)]
        if os.environ.get("HEADRACE_DLROVER"):
            sys.path.append(os.environ["HEADRACE_DLROVER"])
            from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer

            self.dlrover = DdpCheckpointer(os.path.join(self.folder, "dlrover"))
            self.in_memory()  # the first save allocates the memory
            ways.append(("dlrover_memory", self.in_memory))
        return ways

    def in_memory(self) -> float:
        from dlrover.trainer.torch.flash_checkpoint.ddp import StorageType

        self.step += 1
        path = os.path.join(self.folder, "dlrover", str(self.step))
        began = time.perf_counter()
        self.dlrover.save_checkpoint(self.step, self.state, path, storage_type=StorageType.MEMORY)
        return time.perf_counter() - began

    def whole(self) -> float:
        began = time.perf_counter()
        path = os.path.join(self.folder, "whole.pt")
        with open(path, "wb") as file:
            self.torch.save(self.state, file)
            file.flush()
            os.fsync(file.fileno())
        took = time.perf_counter() - began
        os.unlink(path)
        return took

    def behind(self) -> float:
        began = time.perf_counter()
        future = self.dcp.async_save(self.state, checkpoint_id=os.path.join(self.folder, "dcp"))
        took = time.perf_counter() - began
        future.result()
        return took


def dd(slot: str, size: int) -> float:
    target = os.path.join(cfg["dir"], "dd.tmp")
    began = time.perf_counter()
    subprocess.run(
        ["dd", f"if={slot}", f"of={target}", "bs=8M", "oflag=direct", "conv=fsync", f"count={-(-size // (8 << 20))}"],
        check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    took = time.perf_counter() - began
    os.unlink(target)
    return took


def restore(ck: headrace.Checkpointer) -> None:
    model = tensors(cfg["tensors"], cfg["bytes"])  # like a program that has built its model: memory is warm
    began = time.perf_counter()
    restored = ck.restore()
    mapped = time.perf_counter() - began
    copied = copy(model, restored.state)
    began = time.perf_counter()
    with open(restored.manifest.slot, "rb") as file:
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).close()
    bare = time.perf_counter() - began
    warm = {name: np.ones_like(a) for name, a in model.items()}
    floor = [copy(warm, model) for _ in range(3)][-1]
    verified = time.perf_counter()
    assert restored.manifest.fault() is None
    verified = time.perf_counter() - verified
    began = time.perf_counter()
    again = restored.manifest.load()
    only_mapped = time.perf_counter() - began
    del again
    with open(cfg["out"]) as file:
        found = json.load(file)
    found["restore"] = {
        "source": restored.source,
        "called_s": mapped,
        "mapped_s": only_mapped,
        "copied_s": copied,
        "bare_mmap_s": bare,
        "warm_copy_s": floor,
        "checksum_s": verified,
    }
    with open(cfg["out"], "w") as file:
        json.dump(found, file)
    del restored
    ck._flash.memory.close()
    os._exit(0)


if __name__ == "__main__":
    threading.current_thread().name = "trainer"
    sys.exit(main())
