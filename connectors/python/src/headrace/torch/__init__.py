"""Headrace for torch. Nothing of it is imported before you import it.

    import headrace
    import headrace.torch

    loader = headrace.torch.Loader("clicks", 1024)
    for b in loader:                       # a dict of tensors
        loss = train(b["dense"], b["label"])
        loader.step(step)

``batch.torch()`` gives the tensors of one batch, for loops that iterate a stream.

File map:

    _tensors.py     Batch.torch(): views on the CPU, one copy to a GPU
    _jagged.py      Jagged: rows of any length
    _loader.py      Loader: for DataLoader, Lightning, Accelerate
    _stateful.py    Records: the records of a distributed checkpoint that torch writes
    distributed.py  models that are spread over ranks (FSDP, DTensor), in our checkpoints
    lightning.py    a callback for Lightning
    transformers.py a callback for the Trainer of Hugging Face
"""

from __future__ import annotations

from ._jagged import Jagged
from ._loader import Loader, TensorBatch
from ._stateful import Records
from ._tensors import tensors

__all__ = ["Jagged", "Loader", "Records", "TensorBatch", "tensors"]
