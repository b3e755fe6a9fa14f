"""One trainer that measures its own saves. bench.py starts it, and starts it again to measure the
restore."""

from __future__ import annotations

import contextlib
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


def rates(seconds: float, saved: Any = None) -> float:
    """Matrix multiplications per second, for some seconds or until a save has ended."""
    a = np.ones((256, 256), np.float32)
    n, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds if saved is None else not saved.done:
        a @ a
        n += 1
    return n / (time.perf_counter() - began)


def main() -> None:
    attempt = int(os.environ["HEADRACE_ATTEMPT"])
    with headrace.dataset("rows").batches(10) as stream:
        if attempt:
            # The first restore comes at once. The second comes after a model was built: meanwhile the slot is
            # compared with its checksum.
            restore(stream, at_once=attempt == 1)
            return
        ck = headrace.Checkpointer(cfg["dir"], stream, memory=True)
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
            "persists_that_had_ended": 0,
            "saves_that_were_left_out": 0,
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
                state[name][:1000] = -1  # a save that is not a copy would change in the checkpoint
            saved.wait_memory()
            return took, saved

        def durable() -> float:
            began = time.perf_counter()
            took, saved = save(True)
            saved.wait()
            return time.perf_counter() - began - took

        def beside() -> float:
            """A save while another one goes to storage."""
            _, stored = save(True)
            found["persists_that_had_ended"] += stored.done
            took, saved = save(False)
            found["saves_that_were_left_out"] += not saved.in_memory
            stored.wait()
            return took

        def turns(count: int, *ways: tuple[str, Any]) -> None:
            """ABBA."""
            for i in range(count):
                for name, run in ways if i % 2 == 0 else ways[::-1]:
                    found.setdefault(name, []).append(run())

        first, saved = save(False)
        found["first"] = first / copy(floor, state)
        turns(cfg["rounds"], ("floor", lambda: copy(floor, state)), ("save", lambda: save(False)[0]))
        turns(cfg["persists"], ("persist", durable), ("dd", lambda: dd(saved.memory, size)))
        turns(cfg["persists"], ("save_beside", beside), ("floor_beside", lambda: copy(floor, state)))
        turns(cfg["persists"], ("rate_alone", lambda: rates(1)), ("rate_persist", lambda: rates(0, save(True)[1])))
        if cfg["rivals"]:
            with Rivals(state) as rivals:
                ours = ("rival_ours", lambda: save(False)[0])
                turns(cfg["rivals"], ours, *rivals.ways())
                turns(cfg["rivals"], ("rate_alone_dcp", lambda: rates(1)), ("rate_dcp", rivals.rate_behind))
        save(False)
        report(found)
        os.kill(os.getpid(), 9)


def report(found: dict[str, Any]) -> None:
    with contextlib.suppress(FileNotFoundError), open(cfg["out"]) as file:
        found = json.load(file) | found
    with open(cfg["out"], "w") as file:
        json.dump(found, file)


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
            shutil.rmtree("/tmp/ckpt_sock", ignore_errors=True)  # otherwise the next process would wait for this socket
        self.dist.destroy_process_group()

    def ways(self) -> list[tuple[str, Any]]:
        ways: list[tuple[str, Any]] = [("rival_torch_save", self.whole), ("rival_dcp_async_save", self.behind)]
        if os.environ.get("HEADRACE_DLROVER"):
            sys.path.append(os.environ["HEADRACE_DLROVER"])
            from dlrover.trainer.torch.flash_checkpoint.ddp import DdpCheckpointer

            self.dlrover = DdpCheckpointer(os.path.join(self.folder, "dlrover"))
            self.in_memory()  # the first save allocates the memory
            ways.append(("rival_dlrover_memory", self.in_memory))
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

    def rate_behind(self) -> float:
        """Multiplications of matrices per second while DCP saves."""
        future = self.dcp.async_save(self.state, checkpoint_id=os.path.join(self.folder, "dcp"))
        rate = rates(0, Future(future))
        future.result()
        return rate


class Future:
    """A save of DCP."""

    def __init__(self, of: Any) -> None:
        self._of = of

    @property
    def done(self) -> bool:
        return bool(self._of.done())


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


def restore(stream: Any, at_once: bool) -> None:
    if at_once:
        model = tensors(cfg["tensors"], cfg["bytes"])
        ck = headrace.Checkpointer(cfg["dir"], stream, memory=True)
    else:
        ck = headrace.Checkpointer(cfg["dir"], stream, memory=True)
        model = tensors(cfg["tensors"], cfg["bytes"])
    began = time.perf_counter()
    restored = ck.restore()
    called = time.perf_counter() - began
    copied = copy(model, restored.state)
    warm = {name: np.ones_like(a) for name, a in model.items()}
    floor = [copy(warm, model) for _ in range(3)][-1]
    found: dict[str, Any] = {
        "source": restored.source,
        "called_s": called,
        "copied_s": copied,
        "warm_copy_s": floor,
    }
    if at_once:
        report({"restore_at_once": found})
        os.kill(os.getpid(), 9)
    began = time.perf_counter()
    with open(restored.manifest.slot, "rb") as file:
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).close()
    found["bare_mmap_s"] = time.perf_counter() - began
    mapped = []
    for _ in range(5):
        began = time.perf_counter()
        again = restored.manifest.load()
        mapped.append(time.perf_counter() - began)
        del again
    found["mapped_s"] = sorted(mapped)[2]
    report({"restore": found})
    del restored
    ck._flash.memory.close()
    os._exit(0)


if __name__ == "__main__":
    threading.current_thread().name = "trainer"
    sys.exit(main())
