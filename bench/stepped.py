"""Headrace's side of a comparison: each batch is stepped, and the last one counts too."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def stepped(stream: Any, take: Callable[[Any], T]) -> Generator[T, None, None]:
    """Gives what `take` makes of each batch, and steps the batch after that.

    Close it before the clock stops. That steps the last batch, and waits until the
    master has answered that every step is durable.
    """
    try:
        for batch in stream:
            try:
                yield take(batch)
            finally:
                stream.step()
    finally:
        deadline = time.monotonic() + 60
        while stream.stats().durable < stream.stats().batches:
            if time.monotonic() > deadline:
                raise SystemExit("the last steps are not durable after a minute")
            time.sleep(0.0005)
