"""The fused all-reduce of FlashInfer's interface, by which vLLM and SGLang fuse theirs with RMSNorm.

`install` replaces ``create_allreduce_fusion_workspace`` and ``allreduce_fusion``:

- ccl runs the all-reduce, and the all-reduce with residual and RMSNorm of bfloat16 and float16.
- FlashInfer runs other patterns, in a workspace of its own, which their first call creates.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

import torch
import torch.distributed as dist

from .inference import AllReduce, _found

__all__ = ["install"]


class Workspace:
    """Stands in the place of FlashInfer's workspace for fused all-reduces. ccl needs no memory of it.

    `backend` is the name that the engine asked for, since engines choose layouts by it.
    """

    def __init__(self, reducer: AllReduce, owns: bool, create: Callable[[], Any], given: dict[str, Any]) -> None:
        asked = given.get("backend", "auto")
        self.backend = "trtllm" if asked == "auto" else asked
        self.world_size, self.rank, self.reducer = reducer.world_size, reducer.rank, reducer
        self.metadata = {"use_fp32_lamport": given.get("dtype") == torch.float32}
        self._owns, self._create, self._other = owns, create, None

    def is_buffer_size_sufficient(self, *sizes: Any, **named: Any) -> bool:
        """True: a call of ccl takes any size."""
        return True

    def of_flashinfer(self) -> Any:
        """Returns FlashInfer's own workspace. Its creation is collective."""
        if self._other is None:
            self._other = self._create()
        return self._other

    def destroy(self) -> None:
        """Ends what this workspace has created."""
        if self._other is not None:
            self._other.destroy()
            self._other = None
        if self._owns:
            self.reducer.close()


def _reducer(given: dict[str, Any]) -> tuple[AllReduce, bool] | None:
    """Returns the all-reduce of a workspace's ranks and whether it is new; None where they are not known."""
    c10d: Any = dist
    size, rank, group, carrier = (given.get(k) for k in ("world_size", "rank", "group", "comm_backend"))
    if size is None or rank is None or size < 2:
        return None
    there = None
    if group is not None:
        there = _found(tuple(c10d.get_process_group_ranks(group)), rank, size)
    elif carrier is None:
        there = _found(None, rank, size)
    if there is not None:
        return there, False
    device = torch.device("cuda", torch.cuda.current_device()) if torch.cuda.is_available() else "cpu"
    if group is None and carrier is not None:
        return AllReduce._of(lambda mine: carrier.allgather(mine)[0], rank, size, device), True
    group = group or c10d.group.WORLD
    if group is None or c10d.get_world_size(group) != size:
        return None
    return AllReduce(group, device), True


def install(comm: Any) -> None:
    """Replaces the functions of ``flashinfer.comm``, which is `comm`. A second call does nothing."""
    if getattr(comm.allreduce_fusion, "_of_ccl", False):
        return
    create, fuse = comm.create_allreduce_fusion_workspace, comm.allreduce_fusion
    patterns = comm.AllReduceFusionPattern
    names = inspect.signature(create)

    @functools.wraps(create)
    def create_allreduce_fusion_workspace(*arguments: Any, **named: Any) -> Any:
        given = names.bind(*arguments, **named).arguments
        found = _reducer(given)
        if found is None:
            return create(*arguments, **named)
        return Workspace(*found, lambda: create(*arguments, **named), given)

    @functools.wraps(fuse)
    def allreduce_fusion(
        input: torch.Tensor, workspace: Any, pattern: Any, *arguments: Any, **named: Any
    ) -> Any:
        if not isinstance(workspace, Workspace):
            return fuse(input, workspace, pattern, *arguments, **named)
        reducer = workspace.reducer
        if not arguments and pattern == patterns.kAllReduce and reducer.should_custom_ar(input):
            return reducer.all_reduce(input, out=named.get("output"))
        if not arguments and pattern == patterns.kARResidualRMSNorm and _takes(reducer, input, named):
            return reducer.add_rms_norm(
                input, named["residual_in"], named["rms_gamma"], named.get("rms_eps", 1e-6),
                out=named.get("norm_out"), residual_out=named.get("residual_out"),
            )[0]  # fmt: skip
        return fuse(input, workspace.of_flashinfer(), pattern, *arguments, **named)

    allreduce_fusion._of_ccl = True  # type: ignore[attr-defined]
    comm.create_allreduce_fusion_workspace = create_allreduce_fusion_workspace
    comm.allreduce_fusion = allreduce_fusion


def _takes(reducer: AllReduce, input: torch.Tensor, named: dict[str, Any]) -> bool:
    """True if ccl's kernel does what the call asks for."""
    if named.get("weight_bias") or not reducer.should_add_rms_norm(input):  # Gemma's norm adds 1 to weights
        return False
    residual, norm = named.get("residual_in"), named.get("norm_out")
    if residual is None or named.get("rms_gamma") is None:
        return False
    if norm is not None and norm.data_ptr() in (residual.data_ptr(), _at(named.get("residual_out"))):
        return False
    tensors = (residual, norm, named["rms_gamma"], named.get("residual_out"))
    return all(t is None or (t.dtype == input.dtype and t.is_contiguous()) for t in tensors)


def _at(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
