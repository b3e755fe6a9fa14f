"""A model on several ranks (data parallel) whose checkpoints know their records.

Every rank holds the same model, takes batches of its own, adds its gradient to
those of the others (all-reduce, here over plain sockets), and counts the same
global step. Rank 0 saves the model every few steps, with the exact records that
are in it at that step. Kill any process at any time: the group starts again from the newest
checkpoint, and the records after it are delivered again, to a model that has not
learned from them. Nothing is missing in the model and nothing is in it twice, which the
last line shows: beside its weights the model counts its records and adds up a
hash of each.

    headrace run --model replicated --nproc-per-node 3 --max-restarts 20 \\
        -f numbers.yaml -- python train.py --dir checkpoints

With real models the framework does the all-reduce. The order matters here: step() says
which records are in the model, and save() comes right after it.
"""

from __future__ import annotations

import argparse
import os
import queue
import socket
import threading
import time

import headrace
import numpy as np


class Group:
    """Adds up values over all ranks, through rank 0."""

    def __init__(self, rank: int, size: int) -> None:
        address = (os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500")))
        self.peers: list[socket.socket] = []
        if rank == 0 and size > 1:
            with socket.create_server(address) as server:
                self.peers = [server.accept()[0] for _ in range(size - 1)]
        elif size > 1:
            self.peers = [self._reach(address)]
        self.root = rank == 0

    @staticmethod
    def _reach(address: tuple[str, int]) -> socket.socket:
        deadline = time.monotonic() + 60
        while True:
            try:
                return socket.create_connection(address)
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def sum(self, value: np.ndarray) -> np.ndarray:
        """The sum of all ranks' values, on every rank. EOFError: a rank has ended."""
        if not self.root:
            self.peers[0].sendall(value.tobytes())
            return self._receive(self.peers[0], value)
        total = value.copy()
        for peer in self.peers:
            total += self._receive(peer, value)
        for peer in self.peers:
            peer.sendall(total.tobytes())
        return total

    @staticmethod
    def _receive(peer: socket.socket, like: np.ndarray) -> np.ndarray:
        data = peer.recv(like.nbytes, socket.MSG_WAITALL)
        if len(data) != like.nbytes:
            raise EOFError("another rank has ended")
        return np.frombuffer(data, like.dtype)


def mix(ids: np.ndarray) -> np.ndarray:
    """A hash of each id. The sum of the hashes shows whether a record is missing or there twice."""
    z = ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (z ^ (z >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)


class Input:
    """Batches of a stream, as they come. A rank that has no batch now still takes part
    in the step: the others do not wait for its input."""

    def __init__(self, stream: headrace.Stream) -> None:
        self._ready: queue.Queue[headrace.Batch | Exception | None] = queue.Queue(maxsize=1)
        self.ended = False
        threading.Thread(target=self._read, args=(stream,), daemon=True).start()

    def _read(self, stream: headrace.Stream) -> None:
        try:
            for batch in stream:
                self._ready.put(batch)
            self._ready.put(None)
        except Exception as error:
            self._ready.put(error)

    def next(self) -> headrace.Batch | None:
        """The next batch. None: there is none now, or the stream has ended (`ended`)."""
        try:
            batch = self._ready.get(timeout=0.01)
        except queue.Empty:
            return None
        if isinstance(batch, Exception):
            raise batch
        self.ended = batch is None
        return batch


def train(args: argparse.Namespace) -> None:
    trainer = headrace.init()
    stream = headrace.dataset("numbers").batches(args.rows, rounds=False)  # Input balances the ranks
    checkpoints = headrace.Checkpointer(args.dir, stream, keep=args.keep, sharded=args.sharded)

    weights, seen, checksum, step = np.zeros(2), 0, np.uint64(0), 0
    restored = checkpoints.restore()  # every rank calls it
    if restored is not None:
        model, step = restored.state, restored.step
        weights, seen, checksum = model["weights"], int(model["seen"]), model["checksum"]
    print(f"rank {trainer.rank} begins after step {step} with {seen} records", flush=True)

    group = Group(trainer.rank, trainer.world_size)
    source = Input(stream)
    while True:
        batch = None if source.ended else source.next()
        mine, added = np.zeros(4), np.zeros(1, np.uint64)
        if batch is not None:
            error = weights[0] + weights[1] * batch["x"] - batch["y"]
            mine[:] = error.sum(), (error * batch["x"]).sum(), len(batch), 0
            added[:] = mix(batch["id"]).sum(dtype=np.uint64)
        mine[3] = source.ended
        total, added = group.sum(mine), group.sum(added)
        if total[2] == 0 and total[3] == trainer.world_size:
            break
        if total[2] == 0:
            continue  # no rank has a batch now: this is not a step
        weights -= 0.01 * total[:2] / total[2]
        seen, checksum, step = seen + int(total[2]), np.add(checksum, added)[0], step + 1
        stream.step(step, batches=int(batch is not None))
        if step % args.every == 0:
            checkpoints.save(step, {"weights": weights, "seen": seen, "checksum": checksum})
        time.sleep(args.pause)
    if step:
        checkpoints.save(step, {"weights": weights, "seen": seen, "checksum": checksum}).wait()
    stream.close()
    print(f"rank {trainer.rank} ends: step {step} records {seen} checksum {int(checksum):016x}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", default="checkpoints", help="folder of the checkpoints")
    parser.add_argument("--rows", type=int, default=64, help="rows of a batch")
    parser.add_argument("--every", type=int, default=20, help="steps between two checkpoints")
    parser.add_argument("--keep", type=int, default=3, help="checkpoints to keep")
    parser.add_argument("--sharded", action="store_true", help="each rank saves a part of its own")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds that each step takes longer")
    train(parser.parse_args())
