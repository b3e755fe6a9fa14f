"""Frames in shared memory: when a region goes back to the agent, and which messages are refused."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import socket
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

import headrace
import numpy as np
import pytest
from agent import SCHEMA, Agent, records
from frames import frame, span
from headrace import _columns, _frame, _regions
from headrace import _messages as wire
from headrace._channel import Channel
from headrace._feed import Feed
from shared import FORGET, RELEASE, Lender, memory

Agents = Callable[..., Agent]
pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="shared memory is Linux's")
SIZE = 1 << 16


def message(layout: str, *values: int) -> np.ndarray:
    return np.frombuffer(struct.pack(layout, *values), np.uint8)


def at(region: int, use: int, offset: int, length: int) -> np.ndarray:
    return message("<IIQQ", region, use, offset, length)


def offered(size: int = SIZE, **kwargs: Any) -> tuple[_regions.Regions, Any]:
    """Regions to which the agent has offered region 1, and the agent's view of its bytes."""
    regions = _regions.Regions()
    fd, ours = memory(size, **kwargs)
    try:
        regions.map(1, message("<Q", size), [fd])
    finally:
        os.close(fd)
    return regions, ours


def told(regions: _regions.Regions) -> list[tuple[int, int, int]]:
    """Takes what news() has to send now, and marks it as sent."""
    data, returned = regions.news(5)
    regions.told(returned)
    out = []
    while data:
        length, type_, flags, stream, _ = wire.HEADER.unpack_from(data)
        assert (flags, stream) == (0, 5)
        body, data = data[16 : 16 + length], data[16 + length :]
        out += [(type_, number, use) for number, use in struct.iter_unpack("<II", body)]
    return out


def test_a_region_is_released_when_it_is_mapped_and_when_no_array_is_left_of_its_frame() -> None:
    regions, ours = offered()
    assert told(regions) == [(RELEASE, 1, 0)]
    rows = 50
    data = frame(records(0, rows), [span(rows, 0, 10 * rows)], rows=rows, per_batch=10)
    ours[64 : 64 + len(data)] = data
    columns = _columns.parse_schema(SCHEMA)
    f = _frame.parse(regions.payload(at(1, 1, 64, len(data))), columns, _frame.Names())
    regions.done()
    kept: list[Any] = [
        f.columns["id"][3:9][::2],
        f.columns["dense"].reshape(-1)[5:].view(np.uint32),
        f.columns["tags"][4].astype(np.int64, copy=False),
        memoryview(f.columns["text"].data),
        f.masks["dense"].T,
        np.asarray(f.offsets),
    ]
    del f
    want = [np.array(k) for k in kept]
    while kept:
        gc.collect()
        assert told(regions) == [], "the region was released while an array refers to the frame"
        assert all(np.array_equal(a, b) for a, b in zip(kept, want))
        kept.pop(), want.pop()
    gc.collect()
    assert told(regions) == [(RELEASE, 1, 1)]
    assert told(regions) == []


def test_arrays_are_the_trainers_to_write() -> None:
    regions, ours = offered()
    ours[0:8] = bytes(range(8))
    payload = regions.payload(at(1, 1, 0, 8))
    payload += 1
    assert payload.tolist() == list(range(1, 9))


def test_a_call_that_was_interrupted_comes_again_with_the_same_payload() -> None:
    regions, _ = offered()
    fd, _ = memory(SIZE)
    regions.map(1, message("<Q", SIZE), [fd])  # again: the first time was interrupted before the message was taken
    os.close(fd)
    assert told(regions) == [(RELEASE, 1, 0)]
    first = regions.payload(at(1, 1, 64, 640))
    assert regions.payload(at(1, 1, 64, 640)) is first
    regions.done()
    assert regions.payload(at(1, 1, 64, 640)) is first
    regions.done()
    data, _ = regions.news(5)
    assert data == b""
    del first
    assert regions.news(5) == regions.news(5), "news that was not sent must come again"
    assert told(regions) == [(RELEASE, 1, 1)]


def test_a_region_whose_mapping_was_interrupted_is_given_back() -> None:
    class Interrupted(list):  # type: ignore[type-arg]
        def append(self, _: Any) -> None:
            raise KeyboardInterrupt

    regions, fd = _regions.Regions(), memory(SIZE)[0]
    regions._mapped = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        regions.map(1, message("<Q", SIZE), [fd])
    regions._mapped = []
    regions.map(1, message("<Q", SIZE), [fd])
    os.close(fd)
    assert told(regions) == [(RELEASE, 1, 0)]


def test_a_thread_that_forks_meanwhile_does_not_take_a_region_that_was_released() -> None:
    class Loan:
        region, use, asked = 1, 1, 0

        @property
        def forked(self) -> bool:  # True from the second call on
            self.asked += 1
            return self.asked > 1

    regions, _ = offered()
    told(regions)
    regions._returned.append(Loan())  # type: ignore[arg-type]
    assert told(regions) == [(RELEASE, 1, 1)]
    assert regions.payload(at(1, 2, 0, 64)).size == 64


def test_a_fork_marks_them_while_threads_add_others() -> None:
    stop = threading.Event()

    def add() -> None:
        while not stop.is_set():
            _regions.Regions()

    keep = [_regions.Regions() for _ in range(50)]
    interval = sys.getswitchinterval()
    thread = threading.Thread(target=add)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        for _ in range(3000):
            _regions._mark()  # raises nothing
    finally:
        stop.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert keep


def test_news_of_the_last_connection_are_not_sent_on_the_next() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        feed = Feed("", "", Channel(1, {"track": True}))
        feed._regions, _ = offered()
        feed._sock = ours  # as if _attach() had been interrupted; _replenish(100) would send credit
        feed._replenish(100)
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)


def test_a_frame_outside_its_region_is_refused(rng: random.Random) -> None:
    regions, _ = offered()
    bad = [
        (2, 1, 0, 64),
        (1, 1, 0, SIZE + 1),
        (1, 1, SIZE, 64),
        (1, 1, 32, 64),
        (1, 1, 2**64 - 64, 64),
        (1, 1, 64, 2**64 - 64),
    ]
    for case in bad:
        with pytest.raises(headrace.ProtocolError, match="region"):
            regions.payload(at(*case))
    for size in range(30):
        if size != 24:
            with pytest.raises(headrace.ProtocolError, match="FRAME_AT"):
                regions.payload(np.zeros(size, np.uint8))
    for use in range(1, 2000):
        offset = rng.choice([0, 64, rng.randrange(2 * SIZE), rng.randrange(1 << 64)])
        length = rng.choice([0, 1, SIZE, rng.randrange(2 * SIZE), rng.randrange(1 << 64)])
        fits = offset % 64 == 0 and offset + length <= SIZE
        try:
            payload = regions.payload(at(1, use, offset, length))
        except headrace.ProtocolError:
            assert not fits
            continue
        regions.done()
        assert fits
        assert payload.size == length
        del payload


def test_a_region_that_is_filled_while_it_is_in_use_is_a_breach() -> None:
    regions, _ = offered()
    payload = regions.payload(at(1, 1, 0, 64))
    regions.done()
    with pytest.raises(headrace.ProtocolError, match="in use"):
        regions.payload(at(1, 2, 0, 64))
    assert payload.size == 64


def test_memory_that_could_become_shorter_is_refused() -> None:
    with pytest.raises(headrace.ProtocolError, match="shorter"):
        offered(seals=0)
    regions = _regions.Regions()
    fd, _ = memory(4096)
    for size in (4097, 1 << 40, 0):
        with pytest.raises(headrace.ProtocolError, match="region 1"):
            regions.map(1, message("<Q", size), [fd])
    os.close(fd)


def test_a_region_that_cannot_be_mapped_is_given_back_for_good() -> None:
    regions = _regions.Regions()
    regions.map(1, message("<Q", 4096), [])  # no descriptor came, because this process has too many open files
    assert told(regions) == [(FORGET, 1, 0)]


def test_a_region_in_use_at_a_fork_is_never_filled_again() -> None:
    regions, ours = offered()
    fd, _ = memory(SIZE)
    regions.map(2, message("<Q", SIZE), [fd])
    os.close(fd)
    assert told(regions) == [(RELEASE, 1, 0), (RELEASE, 2, 0)]
    ours[0:4] = b"abcd"
    payload = regions.payload(at(1, 1, 0, 64))
    regions.done()
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.write(write, bytes(payload[:4]))
        os._exit(0)
    after = regions.payload(at(2, 1, 0, 64))
    regions.done()
    assert os.waitpid(child, 0)[1] == 0
    assert os.read(read, 4) == b"abcd"
    os.close(read), os.close(write)
    del payload, after
    gc.collect()
    assert sorted(told(regions)) == [(RELEASE, 2, 1), (FORGET, 1, 1)]
    with pytest.raises(headrace.ProtocolError):
        regions.payload(at(1, 2, 0, 64))


def test_no_signal_is_lost_when_the_regions_of_a_connection_go() -> None:
    # The collector drops an exception that a signal raises inside its callback. So the
    # callback must not be Python code.
    gc.collect()
    gc.disable()  # it may find what earlier tests have left
    try:
        before = len(_regions._all)
        regions = _regions.Regions()
        assert len(_regions._all) == before + 1
        calls: list[str] = []
        sys.setprofile(lambda frame, event, _: calls.append(frame.f_code.co_name) if event == "call" else None)
        del regions
        sys.setprofile(None)
        assert (calls, len(_regions._all)) == ([], before)
    finally:
        gc.enable()


# The tests below use a stream, and an agent that overwrites each region that is released.


def test_frames_come_over_both_ways_while_regions_come_and_go(agents: Agents, rng: random.Random) -> None:
    agent = agents(total=30_000, per_frame=8, regions=4)
    held: list[Any] = []
    count = 0
    lender = None
    with headrace.dataset("clicks").batches(50) as stream:
        for b in stream:
            held.append((count, b["id"], b["tags"], b["text"]))
            count += len(b)
            stream.step()
            lender = agent.streams[1].lender
            assert lender is not None
            if lender.count == 4 and not lender.refused:
                continue  # keeps batches until the agent has no region left for a frame
            while len(held) > rng.choice([0, 1, 2, 40]):
                first, ids, tags, text = held.pop(rng.randrange(len(held)))
                assert ids.tolist() == list(range(first, first + len(ids)))
                assert tags.values.tolist() == [i for i in ids.tolist() for _ in range(i % 4)]
                assert text[0] == f"r{first}"
    assert count == 30_000
    assert lender is not None
    assert lender.lent
    assert lender.refused


def test_a_batch_that_was_kept_outlives_stream_and_agent(agents: Agents) -> None:
    agent = agents(total=2000, per_frame=2, regions=3)
    kept = []
    with headrace.dataset("clicks").batches(50) as stream:
        for b in stream:
            kept.append(b["id"])
            stream.step()
    agent.kill()
    lender = agent.streams[1].lender
    assert lender is not None
    assert lender.lent
    for region in lender.regions.values():
        region.close()
    assert np.array_equal(np.concatenate(kept), np.arange(2000))


def test_shared_frames_can_be_switched_off(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_SHARED_FRAMES", "0")
    agent = agents(total=100, regions=3)
    with headrace.dataset("clicks").batches(50) as stream:
        for _ in stream:
            stream.step()
    assert agent.streams[1].lender is None


def test_descriptors_are_closed(agents: Agents) -> None:
    agent = agents(total=4000, per_frame=1, regions=30)

    def open_files() -> int:
        return len(os.listdir("/proc/self/fd"))

    with headrace.dataset("clicks").batches(50) as stream:
        next(stream)
        stream.step()
        before = open_files()
        for _ in stream:
            stream.step()
        lender = agent.streams[1].lender
        assert isinstance(lender, Lender)
        assert lender.count > 10
        # mmap keeps a descriptor of its own for each region.
        assert open_files() <= before + lender.count * 3


def test_a_descriptor_that_came_with_a_breach_is_closed(agents: Agents) -> None:
    agent = agents(total=1000, regions=1)
    agent.hold = True

    def breach() -> None:
        agent.wait(lambda: 1 in agent.streams and agent.streams[1].lender is not None)
        data, lender = agent.streams[1].data, agent.streams[1].lender
        assert data is not None
        assert isinstance(lender, Lender)
        lender.offer(data, 1, seals=0)

    def open_regions() -> list[int]:
        """The inode of each of them."""
        found = []
        for fd in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # another thread has closed it meanwhile
                if "headrace-test" in os.readlink(f"/proc/self/fd/{fd}"):
                    found.append(os.stat(f"/proc/self/fd/{fd}").st_ino)
        return found

    earlier = set(open_regions())  # of agents of earlier tests, whose threads may not have ended yet
    stream = headrace.dataset("clicks").batches(50)
    telling = threading.Thread(target=breach)
    telling.start()
    for _ in range(2):  # the error stays
        with pytest.raises(headrace.ProtocolError, match="shorter"):
            next(stream)
    telling.join()
    assert len([inode for inode in open_regions() if inode not in earlier]) == 1  # the agent's own, in this process
    stream.close()


@pytest.mark.parametrize(
    ("type_", "body"),
    [
        (wire.REGION, b""),
        (wire.REGION, b"\0" * 9),
        (wire.FRAME_AT, struct.pack("<IIQQ", 3, 1, 0, 64)),
        (wire.FRAME_AT, b"\0" * 23),
        (wire.RELEASE, struct.pack("<II", 1, 1)),
    ],
)
def test_a_message_that_makes_no_sense_is_a_breach(agents: Agents, type_: int, body: bytes) -> None:
    agent = agents(total=100)
    agent.hold = True

    def tell() -> None:
        agent.wait(lambda: 1 in agent.streams and agent.streams[1].data is not None)
        agent.tell_data(1, type_, body)

    with pytest.raises(headrace.ProtocolError), headrace.dataset("clicks").batches(50) as stream:
        telling = threading.Thread(target=tell)
        telling.start()
        try:
            next(stream)
        finally:
            telling.join()
