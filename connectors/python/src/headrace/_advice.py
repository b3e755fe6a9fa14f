"""Warnings when next() waits for something that only this program can do."""

from __future__ import annotations

import logging
import sys

from ._channel import Channel

log = logging.getLogger("headrace")

_told: set[str] = set()  # by look_for_group(), once for each process

STUCK = 3.0  # seconds of waiting, before a word of advice


def look_for_group(model: str) -> None:
    """Warns if ranks seem to train in step while they read without rounds. If one of them gets no
    batch, the others wait for it in all-reduce for ever."""
    torch = sys.modules.get("torch.distributed")
    if model == "replicated" or torch is None or not torch.is_available() or not torch.is_initialized():
        return
    ranks = torch.get_world_size()
    if ranks > 1 and not _told:
        _told.add("group")
        log.warning(
            "torch.distributed has %d ranks, and this job's model is %r: ranks that train in step (DDP, FSDP) hang "
            "when one of them gets no batch. Start the master with --model replicated (headrace run has it, too), and "
            "all ranks get the same rounds. If these ranks do not train in step, say rounds=False",
            ranks, model,
        )  # fmt: skip


class Advice:
    """Gives each warning once for each wait. The control thread looks on each of its turns."""

    def __init__(self, channels: dict[int, Channel]) -> None:
        self._channels = channels
        self._since: dict[int, float] = {}  # by stream: when its present wait began

    def look(self, now: float) -> None:
        for channel in list(self._channels.values()):
            drained = channel.waiting and channel.state == "drained"
            held = channel.yielded - channel.stepped
            if channel.waiting and channel.state == "restore":
                self._say_alone(channel, now)
            elif drained and held and channel.tracked:
                self._say_held(channel, now, held)
            elif drained and not held and self._read_in_turns(channel):
                self._say_turns(channel, now)
            else:
                self._since.pop(channel.number, None)

    def _due(self, channel: Channel, now: float) -> bool:
        """Whether the stream has waited for long, and no warning was given yet."""
        if now - self._since.setdefault(channel.number, now) <= STUCK:
            return False
        self._since[channel.number] = float("inf")
        return True

    def _say_held(self, channel: Channel, now: float, held: int) -> None:
        """Warns that next() waits for batches that this process itself holds unstepped."""
        if self._due(channel, now):
            log.warning(
                "%s: next() waits, because all other records are with other workers or done, and this process holds %d "
                "unstepped batches. Call stream.step(batches=%d) before you ask for more",
                channel.open["dataset"], held, held,
            )  # fmt: skip

    def _say_alone(self, channel: Channel, now: float) -> None:
        """Warns that a rank which joined alone gets nothing before the others have restored."""
        if self._due(channel, now):
            log.warning("%s: next() waits: %s", channel.open["dataset"], channel.reason)

    def _read_in_turns(self, channel: Channel) -> bool:
        """Whether the waiting thread also reads another stream of the same dataset. Nobody gets
        the rows of that stream meanwhile. Streams of virtual ranks, and of rounds, have their own shares."""
        if channel.open.get("virtual") is not None or channel.open.get("rounds"):
            return False
        return any(
            other is not channel
            and other.open["dataset"] == channel.open["dataset"]
            and not (other.closed or other.ended or other.waiting)
            and other.iterator in (0, channel.iterator)
            for other in list(self._channels.values())
        )

    def _say_turns(self, channel: Channel, now: float) -> None:
        if self._due(channel, now):
            log.warning(
                "%s: next() waits, because all other records are with other workers or done. This thread reads another "
                "stream of the same dataset too. If that stream has the rest, next() waits for ever: read one stream, "
                "or give each stream a thread that takes its batches and steps them",
                channel.open["dataset"],
            )
