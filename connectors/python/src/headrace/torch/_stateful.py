"""Records: the records of a distributed checkpoint (torch.distributed.checkpoint)."""

from __future__ import annotations

import json
from typing import Any

from headrace._covered import carried
from headrace._errors import CheckpointError
from headrace._stream import Stream

from ._loader import Loader

_KEY = "cut"
_EMPTY = "nothing was yielded yet"


class Records:
    """The records that are in the model, as a Stateful of torch.distributed.checkpoint.

        dcp.save({"model": model, "records": headrace.torch.Records(stream)}, checkpoint_id=path)
        dcp.load({"model": model, "records": headrace.torch.Records(stream)}, checkpoint_id=path)

    Every rank saves right after its step(), and loads before its first batch. A load asks
    for a state to fill first: before the first batch that is an empty one, and a
    checkpoint that was saved then is refused.
    """

    def __init__(self, stream: Stream | Loader) -> None:
        self._stream = stream.stream if isinstance(stream, Loader) else stream
        carried(self._stream._trainer, "call dcp.save() after the loop too")

    def __repr__(self) -> str:
        return f"Records({self._stream!r})"

    def state_dict(self) -> dict[str, Any]:
        if not self._stream.stats().batches:
            return {_KEY: _EMPTY}
        return {_KEY: json.dumps(self._stream.state_dict())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Raises CheckpointError, as Stream.load_state_dict() does."""
        if state[_KEY] == _EMPTY:
            raise CheckpointError(
                "this distributed checkpoint was saved before the first batch, so it has no records: leave `records` "
                'out of the load, and begin with headrace.init(resume="start")'
            )
        self._stream.load_state_dict(json.loads(state[_KEY]))
