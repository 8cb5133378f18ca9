"""Plug-in of SGLang: groups all-reduce by ccl, and fuse it with residual and RMSNorm.

SGLang calls `register` in each of its processes, by the entry point ``ccl`` of the group
``sglang.srt.plugins``. It does nothing unless ``CCL_INFERENCE=1``.
"""

from __future__ import annotations

import importlib
import logging
from typing import Any

from . import _engines

__all__ = ["register"]

_log = logging.getLogger("sglang.ccl")
_GROUP = "sglang.srt.distributed.parallel_state.GroupCoordinator.__init__"
_registered = False


def register() -> None:
    """Makes SGLang take ccl. A second call does nothing.

    - Groups that would have a custom all-reduce have ccl's in its place, as `ca_comm`.
    - Tensors that it does not take go the way that SGLang has without one.
    - FlashInfer's fused all-reduce is `ccl.torch.flashinfer`, if FlashInfer is installed.
    - ``SGLANG_NCCL_SO_PATH`` names ccl's library, if it names none and the wheel has one.
    - ``CCL_DETERMINISTIC=1`` is set if ``SGLANG_ENABLE_DETERMINISTIC_INFERENCE`` is.
    """
    global _registered
    if _registered or not _engines.wanted():
        return
    _registered = True
    _engines.one_order("SGLANG_ENABLE_DETERMINISTIC_INFERENCE")
    _engines.use_library("SGLANG_NCCL_SO_PATH")
    hooks: Any = importlib.import_module("sglang.srt.plugins.hook_registry")
    hooks.HookRegistry.register(_GROUP, _group_made, hooks.HookType.AFTER)
    fused = _engines.use_flashinfer()
    _log.info("all-reduces of tensor-parallel groups run by ccl; fused with RMSNorm: %s", fused)


def _group_made(result: None, group: Any, *arguments: Any, **named: Any) -> None:
    """Hook after the constructor of SGLang's groups."""
    if not group.use_custom_allreduce or group.world_size < 2:
        return
    from .torch import _devices
    from .torch.inference import AllReduce

    if not _devices.has_gpu(group.device):
        return
    group.ca_comm = AllReduce(group.cpu_group, group.device)
