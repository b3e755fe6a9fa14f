"""A replicated model: at each step the ranks add up their batches, over a star of sockets. A rank
without a batch takes part with an empty one."""

import contextlib
import queue
import socket
import struct
import threading
import time

import headrace
import numpy as np

from .ending import enough, leaving
from .exact import ExactInput
from .journal import APPLIED, ENDED, STEPPED, cfg, rnd, write
from .reader import open_stream, yielded
from .rounds import RoundInput
from .saving import Saving
from .server import reach, take
from .sums import Model, content
from .traps import reached

PATIENCE = 60  # seconds, for the slowest rank


class Group:
    def __init__(self, rank, size):
        self.peers = []
        if rank == 0:
            with socket.create_server(("127.0.0.1", cfg["port"])) as server:
                server.settimeout(PATIENCE)
                self.peers = [server.accept()[0] for _ in range(size - 1)]
        else:
            self.peers = [reach(cfg["port"])]
        for peer in self.peers:
            peer.settimeout(PATIENCE)
        self.root = rank == 0

    def reduce(self, numbers, keys):
        """Adds the numbers of all ranks, and joins their keys. Every rank gets both."""
        if not self.root:
            send(self.peers[0], numbers, keys)
            return receive(self.peers[0], numbers)
        total, all_keys = numbers.copy(), [keys]
        for peer in self.peers:
            more, theirs = receive(peer, numbers)
            total += more
            all_keys.append(theirs)
        joined = np.concatenate(all_keys)
        for peer in self.peers:
            send(peer, total, joined)
        return total, joined


def send(peer, numbers, keys):
    peer.sendall(struct.pack("<I", len(keys)) + numbers.tobytes() + keys.tobytes())


def receive(peer, like):
    (n,) = struct.unpack("<I", take(peer, 4))
    return np.frombuffer(take(peer, like.nbytes), like.dtype), np.frombuffer(take(peer, 8 * n), np.int64)


class Input:
    """Batches of all streams, as they come. It waits for no stream."""

    def __init__(self):
        self.ready = queue.Queue(maxsize=2)
        self.open = len(cfg["slots"])
        self.kept = None
        self.streams = [open_stream(slot) for slot in cfg["slots"]]

    def start(self):
        for n, slot in enumerate(cfg["slots"]):
            threading.Thread(target=self.read, args=(slot, self.streams[n], n + 1), daemon=True).start()

    def read(self, slot, s, stream):
        for b in s:
            keys, checks = content(b, slot)
            yielded(stream, b.number, keys, checks)
            self.ready.put((s, stream, b.number, keys, checks, slot))
        write(ENDED, stream)
        self.ready.put(None)

    @property
    def over(self):
        return self.open == 0 and self.kept is None or enough.is_set()

    def next(self, _step):
        """Up to three batches of one stream. It is empty if there is none now."""
        found = []
        while not self.over and len(found) < (3 if rnd.random() < 0.2 else 1):
            try:
                one = self.kept or (self.ready.get_nowait() if found else self.ready.get(timeout=0.01))
            except queue.Empty:
                break
            self.kept = None
            if one is None:
                self.open -= 1
            elif found and one[0] is not found[0][0]:
                self.kept = one
                break
            else:
                found.append(one)
        return found

    def step(self, step, found):
        s = found[0][0] if found else self.streams[0]
        s.step(step, batches=len(found))
        return s.stats().durable if found else 0

    def close(self):
        leaving.set()  # threads that still read see an error, which failed_beside ignores
        for s in self.streams:
            s.close()


def input_of():
    if cfg["exact_rows"]:
        return ExactInput()
    return RoundInput() if cfg["rounds"] else Input()


def replicated():
    trainer = headrace.init()
    saving, model = Saving(trainer), Model()
    source = input_of()
    found = saving.restore(lambda: contextlib.nullcontext(source.streams[0]))
    step = 0
    if found is not None:
        step, state, _ = found
        model.load(state)
    source.start()
    group = Group(trainer.rank, trainer.world_size)
    while True:
        found = source.next(step + 1)
        total, keys = reduced(group, found, source.over, trainer.rank == 0 and saving.due())
        if cfg["rounds"]:
            source.judge(found, int(total[-3]), len(keys), trainer.world_size, int(total[-2]))
        if not found and len(keys) == 0:
            if total[-2] == trainer.world_size:
                break
            continue  # no rank has a batch now: this is not a step
        step += 1
        model.sums += total[:-3]
        model.count(keys)
        for _, stream, number, _, _, _ in found:
            write(APPLIED, stream, number)
        reached("apply")
        durable = source.step(step, found)
        saving.new = True
        for _, stream, number, _, _, _ in found:
            write(STEPPED, stream, number, durable)
        reached("step")
        if found and durable == found[-1][2]:
            reached("acked")
        if total[-1]:
            saving.new = saving.save(step, model.state, source.streams[0])
    if unsaved(group, saving):
        saving.save(step, model.state, source.streams[0], wait=True)
    source.close()


def place(found):
    """Stream and number of the last batch, as one number; 0: there is none."""
    return found[-1][1] << 32 | found[-1][2] if found else 0


def unsaved(group, saving):
    """Whether the model of some rank is not on storage. All ranks get the same answer, so all save or none."""
    total, _ = group.reduce(np.array([saving.unsaved()], np.uint64), np.zeros(0, np.int64))
    return total[0] > 0


def reduced(group, found, over, save):
    """Over all ranks: the sums; then the sum of their places, how many ranks are over, and whether to
    save. And the keys of all records."""
    mine, keys = np.zeros(2 * len(cfg["sizes"]) + 3, np.uint64), np.zeros(0, np.int64)
    part = Model()
    for _, _, _, k, checks, slot in found:
        time.sleep(len(k) / slot["rate"])
        part.add(k, checks)
        keys = np.concatenate([keys, k])
    mine[:-3], mine[-3], mine[-2], mine[-1] = part.sums, place(found), over, save
    return group.reduce(mine, keys)
