"""Backend of torch.distributed for CPU and CUDA tensors: ``init_process_group("ccl_comm")``.

``import ccl.torch`` registers it; versions of PyTorch that look for entry points find it without
the import. The name ``ccl`` is that of another vendor's backend, and is left to it.
"""

from __future__ import annotations

import torch.distributed as dist

from ._functors import reduce_op
from ._group import NAME, ProcessGroup
from ._work import Work

__all__ = ["NAME", "ProcessGroup", "Work", "reduce_op", "register"]


def register() -> None:
    """Registers the backend ``ccl_comm`` with torch.distributed. A second call does nothing."""
    if NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, ProcessGroup._create, extended_api=True, devices=["cpu", "cuda"])


register()
