"""Checkpoints in the memory of other nodes: their agents keep them (docs/FLASH.md)."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _cuts
from ._errors import CheckpointError, HeadraceError
from ._memory import InMemory
from ._slots import Folder

if TYPE_CHECKING:
    from ._calls import Answer
    from ._trainer import Trainer

log = logging.getLogger("headrace")

FIND_SECONDS = 600.0  # for other nodes to compare their copies with the checksums
FORGET_SECONDS = 10.0


class Peers:
    """Asks the agent of this node to find and copy checkpoints at the agents of other nodes."""

    def __init__(self, trainer: Trainer, folder: Folder, any_rank: bool) -> None:
        """any_rank: the state of any rank is that of this one."""
        self._trainer = trainer
        self._folder = folder
        self._any = any_rank
        self._brought: dict[str, str] = {}  # paths, by cut

    def copies(self) -> int:
        """The number of copies of each checkpoint that other nodes keep."""
        return int(self._trainer.control.welcome.get("replicas", 0))

    def find(self, known: list[str]) -> tuple[list[AtPeer], list[str]]:
        """The checkpoints in the memory of other nodes, without the cuts in `known`, and the
        reasons why some do not count."""
        if not self._trainer.control.welcome.get("peers"):
            return [], []
        self.clean()
        try:
            answer = self._call(FIND_SECONDS, mode="find", any=self._any, readable=known)
        except CheckpointError as error:
            return [], [str(error)]
        found: list[AtPeer] = []
        for one in (answer.body or {}).get("found") or ():
            about = one["about"]
            if about.get("version") != 1:
                continue
            manifest = AtPeer(
                path=about["path"],
                fields=about["manifest"],
                slot=f"{one['agent']}:{one['cut']}",
                shard=bool(about.get("shard")),
                agent=str(one["agent"]),
                writer=int(one["rank"]),
                peers=self,
            )
            found.append(manifest)
        return found, [str(fault) for fault in (answer.body or {}).get("faults") or ()]

    def bring(self, manifest: AtPeer) -> str:
        """Copies it into this node's memory. Gives its path. Raises CheckpointError."""
        path = self._brought.get(manifest.cut_id)
        if path is None:
            began = time.monotonic()
            path = self._call(
                FIND_SECONDS, mode="bring", cut=manifest.cut_id, path=manifest.agent, **{"from": manifest.writer}
            ).path
            self._brought[manifest.cut_id] = path
            log.info("step %d came from agent %s in %.2f s", manifest.step, manifest.agent, time.monotonic() - began)
        return path

    def forget(self) -> None:
        """Has the copies of this rank removed. Called when its last checkpoint is on storage."""
        if self._trainer.control.welcome.get("replicas"):
            with contextlib.suppress(HeadraceError):
                self._call(FORGET_SECONDS, mode="forget")

    def clean(self) -> None:
        """Removes copies that were brought here. Readers keep theirs mapped."""
        self._brought.clear()
        start = f"rank-{self._trainer.rank}-brought-"
        for name in os.listdir(self._folder.path):
            if name.startswith(start):
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(os.path.join(self._folder.path, name))

    def _call(self, seconds: float, **fields: Any) -> Answer:
        what = "asking other nodes for checkpoints in memory"
        fields.update(call="peers", into=self._folder.path)
        answer = _cuts.wait(self._trainer, fields, time.monotonic() + seconds, what)
        if answer.code != "ok":
            raise CheckpointError(f"{what}: {answer.reason or answer.code}")
        return answer


@dataclass(frozen=True)
class AtPeer(InMemory):
    """A checkpoint in the memory of another node."""

    agent: str = ""  # that keeps it
    writer: int = 0  # the rank whose state it is
    peers: Peers | None = None

    def _here(self) -> InMemory:
        """Brings the checkpoint into this node's memory. Raises CheckpointError."""
        assert self.peers is not None
        slot = self.peers.bring(self)
        return InMemory(self.path, self.fields, slot=slot, shard=self.shard, verified=self.verified)

    def fault(self) -> str | None:
        try:
            return self._here().fault()
        except CheckpointError as error:
            return f"step {self.step} of agent {self.agent}: {error}"

    def load(self) -> tuple[Any, dict[str, Any]]:
        return self._here().load()
