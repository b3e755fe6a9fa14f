"""Batches as tensors: views on the CPU, one copy to a GPU."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from headrace._batch import Batch
from headrace._columns import Bytes, Ragged

from ._jagged import Jagged

_ALIGN = 64  # bytes; each column of a copy begins at a multiple

Device = Any  # what torch.device() takes


def tensors(batch: Batch, device: Device = None) -> dict[str, Any]:
    """The columns of a batch: name -> tensor, `Jagged`, or `headrace.Bytes` of strings.

    device None or "cpu": the tensors are views of the batch's memory, so writing to a
    tensor changes the batch. A CUDA device: the columns are copied once into pinned
    memory that torch has allocated, and then in one transfer on a stream of its own.
    The current stream waits for the transfer; this thread does not.
    """
    return columns_as_tensors({name: batch[name] for name in batch}, device)


def columns_as_tensors(columns: dict[str, Any], device: Device) -> dict[str, Any]:
    """Does what tensors() does, for columns that need not be those of a batch."""
    where = torch.device("cpu" if device is None else device)
    if where.type == "cpu":
        return {name: _view(column) for name, column in columns.items()}
    return _Copy(columns).to(where)


def _view(column: Any) -> Any:
    if isinstance(column, np.ndarray):
        return torch.from_numpy(column)
    if isinstance(column, Ragged):
        return Jagged(_view(column.values), torch.from_numpy(column.offsets))
    return column  # Bytes


class _Copy:
    """All arrays of some columns, one after the other in one buffer."""

    def __init__(self, columns: dict[str, Any]) -> None:
        self._columns = columns
        self._arrays: list[tuple[np.ndarray[Any, Any], int]] = []
        self._size = 0
        for column in self._columns.values():
            self._add(column)

    def _add(self, column: Any) -> None:
        if isinstance(column, np.ndarray):
            self._arrays.append((column, self._size))
            self._size += -(-column.nbytes // _ALIGN) * _ALIGN
        elif isinstance(column, Ragged):
            self._add(column.values)
            self._add(column.offsets)

    def fill(self, buffer: torch.Tensor) -> None:
        """Copies the arrays into a buffer of bytes in the memory of the host."""
        into = buffer.numpy()
        for array, at in self._arrays:
            into[at : at + array.nbytes].view(array.dtype).reshape(array.shape)[...] = array

    def take(self, buffer: torch.Tensor) -> dict[str, Any]:
        """The columns as views of the buffer, wherever it is."""
        parts = iter(self._arrays)
        return {name: self._taken(column, buffer, parts) for name, column in self._columns.items()}

    def _taken(self, column: Any, buffer: torch.Tensor, parts: Any) -> Any:
        if isinstance(column, np.ndarray):
            array, at = next(parts)
            dtype = torch.from_numpy(array[:0]).dtype
            return buffer[at : at + array.nbytes].view(dtype).reshape(array.shape)
        if isinstance(column, Bytes):
            return column  # no GPU takes strings
        values = self._taken(column.values, buffer, parts)
        return Jagged(values, self._taken(column.offsets, buffer, parts))

    def to(self, device: torch.device) -> dict[str, Any]:
        if device.type != "cuda":
            host = torch.empty(self._size, dtype=torch.uint8)
            self.fill(host)
            return self.take(host.to(device))
        # torch keeps pinned memory until what was queued for it is done, and uses it again
        # then. Our frames are never registered with CUDA: they are the agent's memory too.
        host = torch.empty(self._size, dtype=torch.uint8, pin_memory=True)
        self.fill(host)
        side, current = _side_stream(device), torch.cuda.current_stream(device)
        with torch.cuda.stream(side):
            there = host.to(device, non_blocking=True)
            came = side.record_event()
        current.wait_event(came)
        there.record_stream(current)  # its memory was taken on the other stream
        return self.take(there)


_streams = threading.local()


def _side_stream(device: torch.device) -> torch.cuda.Stream:
    """This thread's stream for copies to the device."""
    number = torch.cuda.current_device() if device.index is None else device.index
    name = f"cuda{number}"
    if not hasattr(_streams, name):
        setattr(_streams, name, torch.cuda.Stream(number))
    return getattr(_streams, name)
