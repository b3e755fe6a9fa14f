"""The agent's side of frames in shared memory (docs/PROTOCOL.md), for the scripted agent."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import struct
from array import array

HEADER = struct.Struct("<IHHII")  # length, type, flags, stream, number
REGION, FRAME_AT, RELEASE, FORGET = range(25, 29)
SEAL_SHRINK, SEAL_GROW = 2, 4
F_ADD_SEALS = 1033


def memory(size: int, seals: int = SEAL_SHRINK | SEAL_GROW) -> tuple[int, mmap.mmap]:
    """A descriptor of shared memory of that size, and the memory."""
    fd = os.memfd_create("headrace-test", os.MFD_CLOEXEC | getattr(os, "MFD_ALLOW_SEALING", 2))
    os.ftruncate(fd, size)
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd, mmap.mmap(fd, size)


class Lender:
    """The regions of one data connection. A region is overwritten as soon as it is released, so that
    a test notices an array that still refers to it."""

    SPOILED = 0xEE

    def __init__(self, regions: int, size: int = 1 << 18) -> None:
        self.most, self.size = regions, size
        self.regions: dict[int, mmap.mmap] = {}
        self.uses: dict[int, int] = {}  # region -> use, for the regions that the trainer has
        self.count = 0
        self.lent = 0  # frames
        self.refused = 0  # frames, because the trainer had all regions
        self.told: list[tuple[int, int, int]] = []  # type, region, use

    def offer(self, connection: socket.socket, stream: int, seals: int = SEAL_SHRINK | SEAL_GROW) -> int:
        """Tells the trainer of one more region; returns its number."""
        self.count += 1
        fd, self.regions[self.count] = memory(self.size, seals)
        self.uses[self.count] = 0
        connection.sendall(HEADER.pack(8, REGION, 0, stream, self.count))
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [fd]))]
        connection.sendmsg([struct.pack("<Q", self.size)], rights)
        os.close(fd)
        return self.count

    def send(self, connection: socket.socket, stream: int, payload: bytes, batches: int) -> bool:
        """Lends a frame; False if no region is free."""
        free = [n for n in self.regions if n not in self.uses]
        if len(self.regions) < self.most:
            self.offer(connection, stream)
        elif not free:
            self.refused += 1
        if not free or len(payload) > self.size:
            return False
        number = free[self.lent % len(free)]
        at = 64 * (self.lent % ((self.size - len(payload)) // 64 + 1))
        self.regions[number][at : at + len(payload)] = payload
        self.lent += 1
        self.uses[number] = self.lent
        body = struct.pack("<IIQQ", number, self.lent, at, len(payload))
        connection.sendall(HEADER.pack(len(body), FRAME_AT, 0, stream, batches) + body)
        return True

    def on(self, type_: int, body: bytes) -> None:
        """RELEASE or FORGET."""
        for number, use in struct.iter_unpack("<II", body):
            self.told.append((type_, number, use))
            if self.uses.get(number) != use:
                continue  # released twice
            del self.uses[number]
            if type_ == FORGET:
                del self.regions[number]
            else:
                self.regions[number][:] = bytes([self.SPOILED]) * self.size
