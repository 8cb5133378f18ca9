"""Small stand-ins for vLLM, SGLang and FlashInfer, with the parts of their interfaces that plug-ins see.

Written from the packages' sources of autumn 2026. `put` makes them importable. `calls` holds what
reached the engines' own ways.
"""

import contextlib
import enum
import importlib
import importlib.metadata
import sys
import types

import torch
import torch.distributed as dist

calls: list[str] = []


def module(name, **contents):
    made = sys.modules[name] = types.ModuleType(name)
    made.__path__ = []
    vars(made).update(contents)
    parent, _, last = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            module(parent)
        setattr(sys.modules[parent], last, made)
    return made


class CudaCommunicator:
    """vLLM's communicator of a group."""

    def __init__(self, cpu_group, device=None, device_group=None, unique_name="", global_ranks=None,
                 global_world_size=None):  # fmt: skip
        self.cpu_group, self.device, self.unique_name = cpu_group, device, unique_name
        self.world_size = dist.get_world_size(cpu_group)
        self.ca_comm = None

    def all_reduce(self, input_):
        calls.append("vllm all_reduce")
        out = input_.clone()
        dist.all_reduce(out, group=self.cpu_group)
        return out

    def destroy(self):
        calls.append("vllm destroy")


class Platform:
    cuda = True

    def is_cuda(self):
        return self.cuda

    @classmethod
    def get_device_communicator_cls(cls):
        return "vllm.distributed.device_communicators.cuda_communicator.CudaCommunicator"


def vllm_group(platform, cpu_group, device, name):
    """Creates what vLLM's GroupCoordinator creates for a group."""
    file, _, cls = platform.get_device_communicator_cls().rpartition(".")
    made = getattr(importlib.import_module(file), cls)(
        cpu_group=cpu_group, device=device, device_group=cpu_group, unique_name=name
    )
    assert isinstance(made, CudaCommunicator)  # which vLLM asserts where it captures graphs
    return made


class HookType(enum.Enum):
    BEFORE, AFTER, AROUND, REPLACE = "before", "after", "around", "replace"


class HookRegistry:
    """SGLang's registry of hooks."""

    hooks: list[tuple] = []

    @classmethod
    def register(cls, target, hook, hook_type=HookType.AFTER, *, source=None):
        cls.hooks.append((target, hook, hook_type))

    @classmethod
    def apply_hooks(cls):
        for target, hook, kind in cls.hooks:
            assert kind is HookType.AFTER, kind
            file, owner, name = target.rsplit(".", 2)
            owner = getattr(importlib.import_module(file), owner)
            original = getattr(owner, name)

            def wrapper(*arguments, _original=original, _hook=hook, **named):
                result = _original(*arguments, **named)
                changed = _hook(result, *arguments, **named)
                return result if changed is None else changed

            setattr(owner, name, wrapper)
        cls.hooks.clear()


class GroupCoordinator:
    """SGLang's group."""

    def __init__(self, cpu_group, device, use_custom_allreduce=True):
        self.cpu_group, self.device, self.use_custom_allreduce = cpu_group, device, use_custom_allreduce
        self.world_size = dist.get_world_size(cpu_group)
        self.ca_comm = None

    @contextlib.contextmanager
    def graph_capture(self):
        with contextlib.nullcontext() if self.ca_comm is None else self.ca_comm.capture():
            yield

    def all_reduce(self, input_):
        if self.ca_comm is not None and not self.ca_comm.disabled and self.ca_comm.should_custom_ar(input_):
            out = self.ca_comm.custom_all_reduce(input_)
            assert out is not None
            return out
        calls.append("sglang all_reduce")
        dist.all_reduce(input_, group=self.cpu_group)
        return input_


class AllReduceFusionPattern:
    kAllReduce = 0
    kARResidualRMSNorm = 1
    kARResidualRMSNormFP8Quant = 2


class FlashInferWorkspace:
    def __init__(self, backend):
        self.backend = backend

    def destroy(self):
        calls.append("flashinfer destroy")


def create_allreduce_fusion_workspace(
    backend="auto", world_size=None, rank=None, max_token_num=None, hidden_dim=None, dtype=None,
    gpus_per_node=None, comm_backend=None, force_oneshot_support=False, group=None, use_fp32_lamport=False,
):  # fmt: skip
    calls.append("flashinfer create")
    return FlashInferWorkspace(backend)


def allreduce_fusion(
    input, workspace, pattern, launch_with_pdl=False, trigger_completion_at_end=True, output=None,
    residual_out=None, norm_out=None, quant_out=None, scale_out=None, residual_in=None, rms_gamma=None,
    rms_eps=1e-6, scale_factor=None, layout_code=None, use_oneshot=None, fp32_acc=False, weight_bias=0.0,
):  # fmt: skip
    assert isinstance(workspace, FlashInferWorkspace), workspace
    calls.append(f"flashinfer pattern {pattern}")
    return input


class TorchDistBackend:
    """FlashInfer's carrier of objects between ranks."""

    def __init__(self, group):
        self.group = group

    def allgather(self, data):
        all = [None] * dist.get_world_size(self.group)
        dist.all_gather_object(all, data, group=self.group)
        return all


def load_plugins(group):
    """Calls the functions of entry points, as the engines do in each of their processes."""
    found = {point.name: point.load() for point in importlib.metadata.entry_points(group=group)}
    for function in found.values():
        function()
    return found


class LLM:
    """vLLM's engine for programs."""

    def __init__(self, model, tensor_parallel_size=1, compilation_config=None):
        assert compilation_config["pass_config"]["fuse_allreduce_rms"] is True
        calls.append(f"vllm {model} {tensor_parallel_size} {sorted(load_plugins('vllm.general_plugins'))}")

    def generate(self, prompts, parameters):
        return [types.SimpleNamespace(outputs=[types.SimpleNamespace(text=prompt[::-1])]) for prompt in prompts]


class Engine:
    """SGLang's engine for programs."""

    def __init__(self, model_path, tp_size=1, enable_flashinfer_allreduce_fusion=False):
        assert enable_flashinfer_allreduce_fusion
        calls.append(f"sglang {model_path} {tp_size} {sorted(load_plugins('sglang.srt.plugins'))}")

    def generate(self, prompts, parameters):
        return [{"text": prompt[::-1]} for prompt in prompts]

    def shutdown(self):
        calls.append("sglang shutdown")


def put():
    """Makes the stand-ins importable, and returns that of vLLM's platform."""
    platform = Platform()
    module("vllm", LLM=LLM, SamplingParams=dict)
    module("sglang", Engine=Engine)
    module("vllm.platforms", current_platform=platform)
    module("vllm.distributed.device_communicators.cuda_communicator", CudaCommunicator=CudaCommunicator)
    module("sglang.srt.plugins.hook_registry", HookRegistry=HookRegistry, HookType=HookType)
    module("sglang.srt.distributed.parallel_state", GroupCoordinator=GroupCoordinator)
    module("flashinfer.comm", AllReduceFusionPattern=AllReduceFusionPattern, allreduce_fusion=allreduce_fusion,
           create_allreduce_fusion_workspace=create_allreduce_fusion_workspace)  # fmt: skip
    return platform


def close_to(got, expected, what):
    torch.testing.assert_close(got.float(), expected.float(), rtol=0.02, atol=0.02, msg=lambda m: f"{what}: {m}")
