"""Jagged: rows of any length, as torch has them."""

from __future__ import annotations

from typing import Any

import torch


class Jagged:
    """A column with any number of values a row: row i is ``values[offsets[i]:offsets[i+1]]``.

    `values` is a tensor (or `headrace.Bytes` of strings), `offsets` an int64 tensor, one
    longer than the rows. The same as torchrec's JaggedTensor holds.
    """

    __slots__ = ("offsets", "values")

    def __init__(self, values: Any, offsets: torch.Tensor) -> None:
        self.values = values
        self.offsets = offsets

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Any:
        at = range(len(self))[row]
        return self.values[int(self.offsets[at]) : int(self.offsets[at + 1])]

    @property
    def lengths(self) -> torch.Tensor:
        """int64 (rows,): values of each row."""
        return self.offsets.diff()

    def padded(self, length: int | None = None, fill: float = 0) -> torch.Tensor:
        """(rows, length): each row from the left, and `fill` after it.

        length: default, that of the longest row. Raises ValueError if a row is longer:
        nothing is cut off by itself.
        """
        values = self._tensor()
        lengths = self.lengths
        longest = int(lengths.max()) if len(self) else 0
        if length is None:
            length = longest
        elif longest > length:
            row = int(lengths.argmax())
            raise ValueError(f"row {row} has {longest} values, more than length={length}: cut it, or take a longer one")
        out = torch.full((len(self), length), fill, dtype=values.dtype, device=values.device)
        out[self.mask(length)] = values
        return out

    def mask(self, length: int | None = None) -> torch.Tensor:
        """bool (rows, length): where padded() has a value of the row."""
        if length is None:
            length = int(self.lengths.max()) if len(self) else 0
        at = torch.arange(length, device=self.offsets.device)
        return at[None, :] < self.lengths[:, None]

    def nested(self) -> torch.Tensor:
        """A nested tensor with torch's jagged layout, which shares the values."""
        nested: torch.Tensor = torch.nested.nested_tensor_from_jagged(self._tensor(), offsets=self.offsets)
        return nested

    def pin_memory(self) -> Jagged:
        """Does what Tensor.pin_memory() does. DataLoader calls it."""
        return Jagged(self._tensor().pin_memory(), self.offsets.pin_memory())

    def to(self, *args: Any, **more: Any) -> Jagged:
        """Does what Tensor.to() does for a device. The offsets keep their type."""
        values = self._tensor().to(*args, **more)
        return Jagged(values, self.offsets.to(values.device))

    def _tensor(self) -> torch.Tensor:
        if not isinstance(self.values, torch.Tensor):
            raise TypeError("strings are no tensor: hash them in the dataset (`hash: {buckets: 1000}`)")
        return self.values

    def __repr__(self) -> str:
        return f"Jagged({len(self)} rows, {len(self.values)} values)"
