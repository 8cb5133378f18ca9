"""Plug-in of vLLM: tensor-parallel groups all-reduce by ccl, and fuse it with residual and RMSNorm.

vLLM calls `register` in each of its processes, by the entry point ``ccl`` of the group
``vllm.general_plugins``. It does nothing unless ``CCL_INFERENCE=1``.
"""

from __future__ import annotations

import importlib
import logging
from typing import TYPE_CHECKING, Any

from . import _engines

__all__ = ["register"]

if TYPE_CHECKING:
    Communicator: Any

_log = logging.getLogger("vllm.plugins.ccl")  # vLLM shows what loggers below its own one say
_base = ""  # name of the class that the platform gives
_made: Any = None


def register() -> None:
    """Makes vLLM take ccl. A second call does nothing.

    - The platform names a subclass of its communicator. All-reduces of groups ``tp`` run by ccl.
    - Tensors that ccl does not take go the way that vLLM has without ccl.
    - FlashInfer's fused all-reduce is `ccl.torch.flashinfer`, if FlashInfer is installed.
    - ``VLLM_NCCL_SO_PATH`` names ccl's library, if it names none and the wheel has one.
    - ``CCL_DETERMINISTIC=1`` is set if ``VLLM_BATCH_INVARIANT`` is.
    """
    global _base
    if _base or not _engines.wanted():
        return
    platforms: Any = importlib.import_module("vllm.platforms")
    platform = platforms.current_platform
    if not platform.is_cuda():
        _log.warning("%s=1 has no effect: ccl's plug-in is for CUDA GPUs", _engines.SETTING)
        return
    _engines.one_order("VLLM_BATCH_INVARIANT")
    _engines.use_library("VLLM_NCCL_SO_PATH")
    _base = platform.get_device_communicator_cls()
    platform.get_device_communicator_cls = lambda: f"{__name__}.Communicator"
    fused = _engines.use_flashinfer()
    _log.info("all-reduces of tensor-parallel groups run by ccl; fused with RMSNorm: %s", fused)


def __getattr__(name: str) -> Any:
    """Makes the class `Communicator` when vLLM looks it up, since its base is vLLM's."""
    if name != "Communicator" or not _base:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    global _made
    if _made is None:
        module, _, base = _base.rpartition(".")
        _made = _communicator(getattr(importlib.import_module(module), base))
    return _made


def _communicator(base: Any) -> Any:
    from .torch.inference import AllReduce

    class Communicator(base):  # type: ignore[misc]
        """Communicator of vLLM whose all-reduces ccl runs in tensor-parallel groups."""

        ccl: AllReduce | None = None

        def __init__(self, cpu_group: Any, *arguments: Any, **named: Any) -> None:
            super().__init__(cpu_group, *arguments, **named)
            if self.unique_name.split(":")[0] == "tp" and self.world_size > 1:
                self.ccl = AllReduce(self.cpu_group, self.device)

        def all_reduce(self, input_: Any) -> Any:
            if self.ccl is not None and self.ccl.should_custom_ar(input_):
                return self.ccl.all_reduce(input_)
            return super().all_reduce(input_)

        def destroy(self) -> None:
            if self.ccl is not None:
                self.ccl.close()
                self.ccl = None
            super().destroy()

    return Communicator
