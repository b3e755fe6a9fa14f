"""Copies of a whole state, by several threads.

One thread does not use all of a machine's memory bandwidth, and numpy and torch let other
threads run while they copy. So the arrays are cut into parts, and each thread takes the
next part until none is left.
"""

from __future__ import annotations

import collections
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

PART = 8 << 20  # bytes that a thread copies before it takes the next
MOST = 4  # threads; more of them gain nothing


def threads() -> int:
    """How many threads copy, or compute checksums, at a time."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, min(MOST, len(os.sched_getaffinity(0))))
    return max(1, min(MOST, os.cpu_count() or 1))


def each(jobs: list[Any], run: Callable[[Any], None], most: int | None = None) -> None:
    """Runs the jobs, in any order, by at most that many threads, this one included. If jobs
    fail, raises the error of the first one."""
    most = min(threads() if most is None else most, len(jobs))
    waiting = collections.deque(jobs)
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while not failed:
                try:
                    job = waiting.popleft()
                except IndexError:
                    return
                run(job)
        except BaseException as error:
            failed.append(error)

    others = [threading.Thread(target=work, name="headrace-copy", daemon=True) for _ in range(most - 1)]
    try:
        with contextlib.suppress(RuntimeError):  # the process may have no more threads: fewer do it
            for other in others:
                other.start()
        work()
    except BaseException as error:  # a signal
        failed.append(error)
    for other in others:
        while other.is_alive():  # nothing is written any more when this returns
            try:
                other.join()
            except BaseException as error:
                failed.append(error)
    if failed:
        raise failed[0]


class Copy:
    """Copies arrays to where a layout has their places.

    An array of more than PART bytes is cut. For example one of 20 MiB has parts of 8, 8 and
    4 MiB. Small ones share a part.
    """

    def __init__(self, views: dict[str, Any]) -> None:
        """views: where each array goes, by name."""
        self.names = list(views)
        self._views = views
        self._cut: list[str] = []  # arrays of several parts
        self._parts: list[list[tuple[str, Any, slice | None]]] = []
        small: list[tuple[str, Any, slice | None]] = []
        size = 0
        for name, view in views.items():
            if view.nbytes > PART:
                self._cut.append(name)
                flat, step = view.reshape(-1), max(1, PART // width(view))
                cuts = [slice(at, at + step) for at in range(0, len(flat), step)]
                self._parts += [[(name, flat[cut], cut)] for cut in cuts]
                continue
            small.append((name, view, None))
            size += int(view.nbytes)
            if size >= PART:
                self._parts.append(small)
                small, size = [], 0
        if small:
            self._parts.append(small)

    def some(self, names: list[str]) -> Copy:
        """Only those."""
        return Copy({name: self._views[name] for name in names})

    def run(self, arrays: dict[str, Any]) -> None:
        """arrays: those of the layout, by name."""
        if not self._shared(arrays):
            for name, view in self._views.items():
                _copy(view, arrays[name])
            return
        flat: dict[str, Any] = {}
        odd = []  # their elements do not lie in order
        for name in self._cut:
            if _in_order(arrays[name]):
                flat[name] = arrays[name].reshape(-1)
            else:
                odd.append([(name, self._views[name], None)])

        def part(targets: list[tuple[str, Any, slice | None]]) -> None:
            for name, view, cut in targets:
                if cut is None:
                    _copy(view, arrays[name])
                elif name in flat:
                    _copy(view, flat[name][cut])

        each(odd + self._parts, part)

    def _shared(self, arrays: dict[str, Any]) -> bool:
        """Several threads may copy. The caller's thread copies a tensor of a device, so that the
        copy comes after the work that this thread has queued there. If torch itself uses several
        threads, it uses them for copies, too."""
        torch = sys.modules.get("torch")
        if torch is None:
            return True
        tensors = [array for array in map(arrays.__getitem__, self.names) if not isinstance(array, np.ndarray)]
        return not tensors or (torch.get_num_threads() == 1 and all(t.is_cpu for t in tensors))


def _copy(view: Any, source: Any) -> None:
    if isinstance(view, np.ndarray):
        np.copyto(view, source)
    else:
        view.copy_(source)


def _in_order(array: Any) -> bool:
    return bool(array.flags.c_contiguous if isinstance(array, np.ndarray) else array.is_contiguous())


def width(array: Any) -> int:
    """Bytes of an element of a numpy array or a torch tensor."""
    return int(array.itemsize if isinstance(array, np.ndarray) else array.element_size())
