"""One of the ranks of test_torch.py: the plug-ins of inference engines, with stand-ins for those.

On a machine with a GPU for each rank they work there, else on CPU ranks, or on played GPUs.
"""

import contextlib
import inspect
import io
import os
import runpy
import sys
from pathlib import Path

import torch
import torch.distributed as dist

import ccl.sglang
import ccl.vllm
import fake_engines
from fake_engines import AllReduceFusionPattern, calls, close_to
from rank_torch import PLAYED, raises, same  # which plays GPUs

DEVICE = torch.device("cpu")
if torch.cuda.is_available() and not PLAYED:
    DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", os.environ["RANK"])))
    torch.cuda.set_device(DEVICE)
FUSED_TYPE = torch.bfloat16 if DEVICE.type == "cuda" else torch.float32


def tensor(me, rows, columns, dtype=torch.float32):
    generator = torch.Generator().manual_seed(7 + me)
    return torch.randn(rows, columns, generator=generator).to(dtype).to(DEVICE)


def all_of(n, rows, columns, dtype=torch.float32):
    return sum(tensor(r, rows, columns, dtype).float() for r in range(n))


def check_reduces(reduce, n, me, own):
    """A group's all-reduces at sizes of decoding are ccl's, out of place; doubles go the engine's own way."""
    calls.clear()
    for rows in (1, 16, 512):
        mine = tensor(me, rows, 64)
        close_to(reduce(mine), all_of(n, rows, 64), f"{rows} rows")
        same(mine, tensor(me, rows, 64), "what was given")
    assert calls == [], calls
    other = torch.ones(3, dtype=torch.float64, device=DEVICE)
    if DEVICE.type == "cpu":  # the engine's own way here is gloo
        same(reduce(other), torch.full((3,), float(n), dtype=torch.float64), "doubles")
        assert calls == [own], calls


def check_fused(comm, workspace, n, me):
    """FlashInfer's call with residual and RMSNorm, in place and not, and patterns that ccl lacks."""
    calls.clear()
    patterns, columns, epsilon = AllReduceFusionPattern, 64, 1e-5
    weight = torch.linspace(0.5, 1.5, columns).to(FUSED_TYPE).to(DEVICE)
    residual = tensor(99, 5, columns, FUSED_TYPE)
    sums = all_of(n, 5, columns, FUSED_TYPE) + residual.float()
    expected = torch.nn.functional.rms_norm(sums, (columns,), weight.float(), epsilon)

    def fuse(mine, before, **named):
        return comm.allreduce_fusion(
            input=mine, workspace=workspace, launch_with_pdl=True, residual_in=before, rms_gamma=weight,
            rms_eps=epsilon, trigger_completion_at_end=True, use_oneshot=True, fp32_acc=True,
            **{"pattern": patterns.kARResidualRMSNorm, **named},
        )  # fmt: skip

    for place in ("apart", "in place", "sum in the input"):
        mine, before = tensor(me, 5, columns, FUSED_TYPE), residual.clone()
        norm_out = mine if place == "in place" else torch.empty_like(mine)
        residual_out = {"apart": torch.empty_like(mine), "in place": before, "sum in the input": mine}[place]
        got = fuse(mine, before, norm_out=norm_out, residual_out=residual_out)
        assert got is norm_out or got.data_ptr() == norm_out.data_ptr()
        close_to(norm_out, expected, f"norm {place}")
        close_to(residual_out, sums, f"residual {place}")
    mine = tensor(me, 5, columns, FUSED_TYPE)
    got = comm.allreduce_fusion(input=mine, workspace=workspace, pattern=patterns.kAllReduce, launch_with_pdl=True)
    close_to(got, all_of(n, 5, columns, FUSED_TYPE), "all-reduce alone")
    assert calls == [], calls
    outputs = {"norm_out": torch.empty_like(mine), "residual_out": torch.empty_like(mine)}
    fuse(mine, residual, pattern=patterns.kARResidualRMSNormFP8Quant, **outputs)
    fuse(mine, residual, weight_bias=1.0, **outputs)
    fuse(mine, residual, norm_out=residual, residual_out=mine)
    assert calls == ["flashinfer create", "flashinfer pattern 2", *2 * ["flashinfer pattern 1"]], calls
    own = fake_engines.FlashInferWorkspace("trtllm")
    comm.allreduce_fusion(mine, own, patterns.kAllReduce)
    assert calls[-1] == "flashinfer pattern 0", calls


def workspace_of(comm, n, me, **named):
    made = comm.create_allreduce_fusion_workspace(
        backend="trtllm", world_size=n, rank=me, max_token_num=64, hidden_dim=64, dtype=FUSED_TYPE, **named
    )
    assert made.backend == "trtllm"
    assert made.is_buffer_size_sufficient(tp_size=n, num_tokens=4096, hidden_dim=64, dtype=FUSED_TYPE)
    if PLAYED:
        made.reducer._fuses = False  # the library for CPU ranks has no fused kernel
    return made


def off(n, me):
    """Without the setting nothing is replaced, and a wrong value is an error."""
    platform = fake_engines.put()
    for value in (None, "", "0"):
        os.environ.pop("CCL_INFERENCE", None)
        if value is not None:
            os.environ["CCL_INFERENCE"] = value
        ccl.vllm.register(), ccl.sglang.register()
        made = fake_engines.vllm_group(platform, dist.group.WORLD, DEVICE, "tp:0")
        assert type(made) is fake_engines.CudaCommunicator
        assert not fake_engines.HookRegistry.hooks
    os.environ["CCL_INFERENCE"] = "yes"
    raises(ccl.BadSettingError, ccl.vllm.register, "CCL_INFERENCE", "'yes'")
    os.environ["CCL_INFERENCE"] = "1"
    platform.cuda = False
    ccl.vllm.register()
    assert platform.get_device_communicator_cls().startswith("vllm.")


def vllm(n, me):
    platform = fake_engines.put()
    comm = sys.modules["flashinfer.comm"]
    os.environ |= {"CCL_INFERENCE": "1", "VLLM_BATCH_INVARIANT": "1"}
    ccl.vllm.register(), ccl.vllm.register()
    assert os.environ.pop("CCL_DETERMINISTIC") == "1"
    assert ccl._build.cuda is False or os.environ["VLLM_NCCL_SO_PATH"] == str(ccl.nccl.library())
    group = dist.new_group(backend="gloo")
    tp = fake_engines.vllm_group(platform, group, DEVICE, "tp:0")
    other = fake_engines.vllm_group(platform, group, DEVICE, "ep:0")
    assert type(tp) is type(other) is not fake_engines.CudaCommunicator
    check_reduces(tp.all_reduce, n, me, "vllm all_reduce")
    if DEVICE.type == "cpu":
        same(other.all_reduce(torch.ones(2)), torch.full((2,), float(n)), "another group")
        assert calls[-1] == "vllm all_reduce"
    made = inspect.signature(comm.create_allreduce_fusion_workspace).parameters
    assert "group" in made and "force_oneshot_support" in made  # engines look for them
    shared = workspace_of(comm, n, me, group=group, comm_backend=fake_engines.TorchDistBackend(group))
    assert shared.reducer is tp.ccl
    check_fused(comm, shared, n, me)
    shared.destroy()
    assert not tp.ccl.disabled
    tp.destroy(), other.destroy()
    alone = workspace_of(comm, n, me, comm_backend=fake_engines.TorchDistBackend(group))
    check_fused(comm, alone, n, me)
    reducer = alone.reducer
    alone.destroy()
    assert reducer.disabled and not reducer.should_custom_ar(torch.ones(8, device=DEVICE))
    raises(ccl.InvalidUsageError, lambda: reducer.all_reduce(torch.ones(8, device=DEVICE)), "closed")
    assert type(comm.create_allreduce_fusion_workspace(world_size=1, rank=0)) is fake_engines.FlashInferWorkspace
    halves = dist.new_group([0], backend="gloo")
    if me == 0:  # a group of another size than that of the workspace
        made = comm.create_allreduce_fusion_workspace(world_size=n, rank=0, group=halves)
        assert type(made) is fake_engines.FlashInferWorkspace
    assert ccl.vllm.Communicator is type(tp)


def sglang(n, me):
    fake_engines.put()
    comm = sys.modules["flashinfer.comm"]
    os.environ["CCL_INFERENCE"] = "1"
    ccl.sglang.register(), ccl.sglang.register()
    assert len(fake_engines.HookRegistry.hooks) == 1
    fake_engines.HookRegistry.apply_hooks()
    group = dist.new_group(backend="gloo")
    tp = fake_engines.GroupCoordinator(group, DEVICE)
    without = fake_engines.GroupCoordinator(group, DEVICE, use_custom_allreduce=False)
    assert without.ca_comm is None
    if DEVICE.type == "cpu" and not PLAYED:  # SGLang never asks for tensors in CPU memory
        assert tp.ca_comm is None
        return
    check_reduces(tp.all_reduce, n, me, "sglang all_reduce")
    with tp.graph_capture():
        close_to(tp.all_reduce(tensor(me, 2, 64)), all_of(n, 2, 64), "in the capture's block")
    shared = workspace_of(comm, n, me)  # SGLang passes no group if it is the whole tensor-parallel one
    assert shared.reducer is tp.ca_comm
    check_fused(comm, shared, n, me)
    tp.ca_comm.close(), tp.ca_comm.close()


def sizes(n, me):
    """The limit on sizes, layouts, and a group that is a part of all ranks."""
    from ccl.torch.inference import AllReduce

    reducer = AllReduce(dist.group.WORLD, DEVICE, max_size=1024)
    assert reducer.should_custom_ar(torch.ones(256, device=DEVICE))
    assert not reducer.should_custom_ar(torch.ones(257, device=DEVICE))
    assert reducer.custom_all_reduce(torch.ones(257, device=DEVICE)) is None
    assert not reducer.should_custom_ar(torch.ones(8, 8, device=DEVICE).t())
    mine = torch.full((256,), me + 1.0, device=DEVICE)
    assert reducer.all_reduce(mine, out=mine) is mine
    close_to(mine, torch.full((256,), n * (n + 1) / 2, device=DEVICE), "in place")
    raises(ccl.InvalidUsageError, lambda: reducer.all_reduce(torch.ones(8, device="meta")), "meta")
    part = dist.new_group(sorted({0, n - 1}), backend="gloo")
    if me in (0, n - 1):
        with torch.inference_mode():
            pair = AllReduce(part, DEVICE)
        close_to(pair.all_reduce(torch.ones(4, device=DEVICE)),
                 torch.full((4,), float(pair.world_size), device=DEVICE), "a part")  # fmt: skip
        pair.close()
    reducer.close()


def examples(n, me):
    """The examples, which start an engine. That loads plug-ins by their entry points."""
    platform, folder = fake_engines.put(), Path(__file__).parents[2] / "examples/python"
    for engine in ("vllm", "sglang"):
        os.environ.pop("CCL_INFERENCE", None)
        calls.clear()
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            runpy.run_path(str(folder / f"with_{engine}.py"))["main"]("a/model", "4")
        assert said.getvalue() == "ecuder-lla tsrif ehT\n", said.getvalue()
        assert calls[0].startswith(f"{engine} a/model 4 ") and "'ccl'" in calls[0], calls
    assert platform.get_device_communicator_cls() == "ccl.vllm.Communicator"
    assert fake_engines.HookRegistry.hooks


def main():
    dist.init_process_group("gloo")
    n, me = dist.get_world_size(), dist.get_rank()
    for case in sys.argv[1:]:
        globals()[case](n, me)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {me}: {' '.join(sys.argv[1:])}", flush=True)


if __name__ == "__main__":
    main()
