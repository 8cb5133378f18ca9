"""Tests of the backend of torch.distributed and of communicators on two GPUs, or of two ranks on one."""

import importlib.util
import unittest
from pathlib import Path

import launch

try:
    import torch

    gpus = torch.cuda.device_count()
except ImportError:
    gpus = 0


def run(script, *cases, limit=120, **environment):
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch.free_port())}
    for output in launch.run(script, 2, *cases, limit=limit, environment=shared | environment, gpus=gpus):
        print(output, end="", flush=True)  # times are in it


@unittest.skipUnless(gpus, "needs a GPU")
class Gpus(unittest.TestCase):
    """Two ranks, which share the GPU if there is one."""

    def test_streams_and_memory(self):
        run("rank_torch_gpu.py", "streams", "memory", "barrier")

    def test_messages_groups_and_graphs(self):
        run("rank_torch_gpu.py", "first_own", "messages", "coalescing", "groups", "graphs")

    def test_all_operations(self):
        run("rank_torch.py", "reductions", "movements", "layouts", "works", ON_CUDA="1")
        run("rank_torch.py", "functional", "training", "groups", "crossing", ON_CUDA="1")

    def test_compiled(self):
        run("rank_torch_gpu.py", "compiled")

    def test_plug_ins_of_engines(self):
        """vLLM's, SGLang's and FlashInfer's calls, by stand-ins, and a step of the example as a graph."""
        run("rank_inference.py", "sizes", "vllm", "sglang")
        run(Path(__file__).parent.parent.parent / "examples/python/inference.py")

    def test_counted_rows(self):
        run("rank_torch_gpu.py", "rows")

    def test_functors(self):
        run("rank_torch_functors.py", "functors", ON_CUDA="1")
        run("rank_torch_gpu.py", "functors")

    def test_a_late_rank_is_named(self):
        for case in ("late", "late_wait"):
            with self.subTest(case=case):
                run("rank_torch_gpu.py", case)


@unittest.skipUnless(gpus >= 2, f"needs two GPUs, and there are {gpus}")
class TwoGpus(unittest.TestCase):
    """Two ranks on GPUs of their own, most of them beside NCCL, which takes no other."""

    def test_communicator(self):
        for case in ("communicator_torch", "communicator_cupy"):
            with self.subTest(case=case):
                run("rank_torch_gpu.py", case)

    @unittest.skipUnless(importlib.util.find_spec("cupy"), "CuPy is not installed")
    def test_example_with_cupy(self):
        run(Path(__file__).parent.parent.parent / "examples/python/with_cupy.py")

    def test_training_beside_nccl(self):
        for case in ("ddp", "fsdp"):
            with self.subTest(case=case):
                run("rank_torch_gpu.py", case)

    def test_norm_beside_nccl(self):
        run("rank_torch_gpu.py", "norm")

    def test_calls_per_second(self):
        run("rank_torch_gpu.py", "calls")


if __name__ == "__main__":
    unittest.main(verbosity=2)
