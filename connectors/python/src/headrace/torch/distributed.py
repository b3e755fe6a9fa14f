"""Models that are spread over ranks (FSDP, DTensor), in checkpoints that know their records.

    ck = headrace.Checkpointer("checkpoints", loader.stream, sharded=True)
    restored = ck.restore()
    if restored is not None:
        headrace.torch.distributed.load(restored, state)      # any number of ranks
    ...
    headrace.torch.distributed.save(ck, step, state)

state is what torch.distributed.checkpoint takes: nested dicts of tensors, DTensors and
plain values, as get_state_dict(model, optimizer) gives. torch.distributed.checkpoint plans
which rank writes and reads which part, also for another number of ranks. The Checkpointer
decides where the parts lie, and makes sure that a checkpoint is whole and carries its cut.

With memory=True each rank's part lies in its own memory, which other nodes do not see. So it
has everything that the rank itself loads again, even if other ranks have that too.
"""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from headrace._errors import CheckpointError
from headrace._state import dtype_name
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, SavePlan, WriteItem, WriteItemType
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future

if TYPE_CHECKING:
    from headrace._checkpoint import Checkpointer
    from headrace._restore import Restored
    from headrace._saved import Saved

FORMAT = "headrace-distributed"
VERSION = 1


def save(ck: Checkpointer, step: int, state: dict[str, Any], *, storage: bool = True) -> Saved:
    """Saves the state as of step, each rank the parts that are its own. Collective: every
    rank calls it right after its step(). Returns as Checkpointer.save() does, and raises
    what it raises; TypeError names a value that is neither a tensor nor plain.

    ck: made with sharded=True, where there are several ranks, and with memory=True or
    without. storage: as in save().
    """
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    if ranks > 1 and not ck._sharded:
        raise ValueError("each rank has a part of its own to save: make the Checkpointer with sharded=True")
    _check_rank(ck._trainer.rank)
    writer = _Writer(all_of_it=ck._flash is not None)
    dcp.save(state, storage_writer=writer, planner=DefaultSavePlanner(), no_dist=ranks == 1)
    parts: dict[str, Any] = {"tensors": writer.tensors, "values": writer.values}
    if writer.about is not None:
        parts["about"] = json.dumps(writer.about)
    return ck.save(step, parts, storage=storage)


def load(restored: Restored, state: dict[str, Any]) -> None:
    """Fills state, in place, from a checkpoint that save() wrote; tensors keep their own
    sharding. Collective. Raises CheckpointError if it is no such checkpoint, or a part
    cannot be read, and what torch.distributed.checkpoint.load() raises of a state that
    does not fit."""
    ranks = dist.get_world_size() if dist.is_initialized() else 1
    reader = _Reader(restored, dist.get_rank() if ranks > 1 else 0)
    about: list[Any] = [reader.own.get("about") if isinstance(reader.own, dict) else None]
    if ranks > 1:
        dist.broadcast_object_list(about, src=0)
    reader.know(about[0])
    dcp.load(state, storage_reader=reader, planner=DefaultLoadPlanner(), no_dist=ranks == 1)


def _check_rank(rank: int) -> None:
    if dist.is_initialized() and dist.get_rank() != rank:
        raise ValueError(
            f"this process is rank {dist.get_rank()} of torch.distributed and rank {rank} of the job: give both the "
            "same rank (torchrun's RANK is what Headrace takes if nothing else is said)"
        )


def _name(fqn: str, offset: Any, size: Any, whole: Any) -> str:
    """How a rank's file calls a part of a tensor; a whole one has the tensor's name."""
    if tuple(size) == tuple(whole):
        return fqn
    return f"{fqn}@{','.join(map(str, offset))}"


class _Writer(StorageWriter):
    """Collects what this rank has to save. about: on the coordinator, where all parts are.
    all_of_it: also what another rank has too and saves."""

    def __init__(self, all_of_it: bool) -> None:
        self._local: SavePlan | None = None
        self._all = all_of_it
        self.tensors: dict[str, torch.Tensor] = {}
        self.values: dict[str, Any] = {}
        self.about: dict[str, Any] | None = None

    def reset(self, checkpoint_id: Any = None) -> None: ...

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        self._local = plan
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return False

    def write_data(self, plan: SavePlan, planner: DefaultSavePlanner) -> Future[list[WriteResult]]:
        results = []
        for item in plan.items:
            if item.type == WriteItemType.BYTE_IO:
                self.values[item.index.fqn] = planner.lookup_object(item.index)
                results.append(WriteResult(index=item.index, size_in_bytes=0, storage_data=""))
                continue
            name, tensor = _tensor(planner, item)
            self.tensors[name] = tensor
            results.append(WriteResult(index=item.index, size_in_bytes=tensor.nbytes, storage_data=name))
        if self._all:
            self._add_what_others_save(planner)
        future: Future[list[WriteResult]] = Future()
        future.set_result(results)
        return future

    def _add_what_others_save(self, planner: DefaultSavePlanner) -> None:
        assert self._local is not None
        for item in self._local.items:
            if item.type != WriteItemType.BYTE_IO:
                name, tensor = _tensor(planner, item)
                self.tensors.setdefault(name, tensor)
        for fqn, value in planner.state_dict.items():
            if not isinstance(value, torch.Tensor):
                self.values.setdefault(fqn, value)

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        where = {(r.index.fqn, tuple(r.index.offset or ())): n for n, rank in enumerate(results) for r in rank}
        tensors: dict[str, Any] = {}
        values: dict[str, int] = {}
        for fqn, of in metadata.state_dict_metadata.items():
            if isinstance(of, BytesStorageMetadata):
                values[fqn] = where[fqn, ()]
                continue
            tensors[fqn] = {
                "dtype": dtype_name(of.properties.dtype),
                "size": list(of.size),
                "chunks": [[list(c.offsets), list(c.sizes), where[fqn, tuple(c.offsets)]] for c in of.chunks],
            }
        self.about = {"format": FORMAT, "version": VERSION, "tensors": tensors, "values": values}


def _tensor(planner: DefaultSavePlanner, item: WriteItem) -> tuple[str, torch.Tensor]:
    """What this rank has of a tensor, and how its file calls it."""
    of = item.tensor_data
    return _name(item.index.fqn, of.chunk.offsets, of.chunk.sizes, of.size), planner.resolve_data(item).detach()


class _Reader(StorageReader):
    """Gives the parts of a checkpoint, this rank's own without reading them again."""

    def __init__(self, restored: Restored, rank: int) -> None:
        self._restored = restored
        self.own = restored.state
        self._rank = rank
        self._parts: dict[int, Any] = {rank: self.own}
        self._where: dict[tuple[str, tuple[int, ...]], tuple[int, str]] = {}
        self._metadata = Metadata({})

    def know(self, about: str | None) -> None:
        try:
            told = json.loads(about or "")
            if told["format"] != FORMAT or told["version"] != VERSION:
                raise ValueError(f"format {told['format']}, version {told['version']}")
            of: dict[str, Any] = {}
            for fqn, t in told["tensors"].items():
                chunks = []
                for offsets, sizes, rank in t["chunks"]:
                    chunks.append(ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes)))
                    self._where[fqn, tuple(offsets)] = rank, _name(fqn, offsets, sizes, t["size"])
                properties = TensorProperties(dtype=getattr(torch, t["dtype"]))
                of[fqn] = TensorStorageMetadata(properties, torch.Size(t["size"]), chunks)
            for fqn, rank in told["values"].items():
                self._where[fqn, ()] = rank, fqn
                of[fqn] = BytesStorageMetadata()
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"{self._restored.path} was not saved by headrace.torch.distributed.save(): {error!r}; "
                "restored.state has what it holds"
            ) from None
        self._metadata = Metadata(of)

    def reset(self, checkpoint_id: Any = None) -> None: ...

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return self._metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None: ...

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return False

    def read_data(self, plan: LoadPlan, planner: DefaultLoadPlanner) -> Future[None]:
        # One rank's parts after the other: of those of other ranks one is in memory at a time.
        for item in sorted(plan.items, key=lambda i: self._at(i.storage_index)[0]):
            rank, name = self._at(item.storage_index)
            if item.type == LoadItemType.BYTE_IO:
                # torch.save() of a plain value, which the planner loads: nothing that was stored is unpickled.
                value = io.BytesIO()
                torch.save(self._part(rank)["values"][name], value)
                value.seek(0)
                planner.load_bytes(item, value)
                continue
            tensor = self._part(rank)["tensors"][name]
            for axis, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
                tensor = tensor.narrow(axis, start, length)
            target = planner.resolve_tensor(item).detach()
            if target.size() != tensor.size():
                raise CheckpointError(
                    f"{self._restored.path}: {name} of rank {rank} has {list(tensor.size())}, and the state wants "
                    f"{list(target.size())}"
                )
            target.copy_(tensor)
            planner.commit_tensor(item, target)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _at(self, index: MetadataIndex) -> tuple[int, str]:
        """The rank whose part has it, and its name there; this rank's, if that has it too."""
        rank, name = self._where[index.fqn, tuple(index.offset or ())]
        if isinstance(self.own, dict) and (name in self.own["tensors"] or name in self.own["values"]):
            rank = self._rank
        return rank, name

    def _part(self, rank: int) -> Any:
        if rank not in self._parts:
            part = self._restored.shard(rank)
            if part is None:
                raise CheckpointError(f"{self._restored.path} has no part of rank {rank}")
            for other in list(self._parts):
                if self._parts[other] is not self.own:
                    del self._parts[other]
            self._parts[rank] = part
        return self._parts[rank]
