"""Tests of the backend of torch.distributed, with four processes on the CPU."""

import atexit
import importlib.util
import multiprocessing
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import unittest
from pathlib import Path

import ccl
import launch

try:
    import torch.distributed as dist
except ImportError:
    dist = None
ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs/guide/pytorch.md"


def one_rank(script, arguments, environment, output):
    """Runs `script` as a program, in a process that has PyTorch loaded already."""
    os.environ |= environment
    with open(output, "w") as file:
        os.dup2(file.fileno(), 1), os.dup2(file.fileno(), 2)
    sys.argv = [str(script), *arguments]
    code = 0
    try:
        runpy.run_path(str(script), run_name="__main__")
    except BaseException:  # noqa: BLE001
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)


def run(script, *arguments, ranks=4, limit=300, environment=None):
    """Runs all ranks, forked from this process, and raises AssertionError with their outputs."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch.free_port()),
              "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}  # fmt: skip
    shared |= environment or {}
    script = Path(__file__).parent / script
    folder = tempfile.mkdtemp()  # no TemporaryDirectory: the first rank that ends would remove it
    try:
        outputs = [Path(folder) / str(rank) for rank in range(ranks)]
        processes = [
            multiprocessing.get_context("fork").Process(
                target=one_rank, args=(script, arguments, shared | {"RANK": str(rank)}, outputs[rank])
            )
            for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        end = time.monotonic() + limit
        for process in processes:
            process.join(max(0.1, end - time.monotonic()))
            if process.exitcode is None:
                process.kill()
                process.join()
        bad = [f"rank {i}: exit {process.exitcode}\n{outputs[i].read_text()}"
               for i, process in enumerate(processes) if process.exitcode]  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    assert not bad, "\n".join(bad)


@unittest.skipUnless(dist, "PyTorch is not installed")
class Torch(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        import torch._dynamo  # seconds, which forked ranks save
        import torch._functorch.aot_autograd  # noqa: F401

    def test_reductions_and_movements(self):
        run("rank_torch.py", "reductions", "movements")

    def test_one_rank_and_three(self):
        for ranks in (1, 3):
            run("rank_torch.py", "reductions", "movements", ranks=ranks)

    def test_layouts_and_bad_arguments(self):
        run("rank_torch.py", "layouts")

    def test_messages_tags_and_any_source(self):
        run("rank_torch.py", "messages", "crossing")

    def test_works_futures_and_coalescing(self):
        run("rank_torch.py", "works")

    def test_groups(self):
        run("rank_torch.py", "groups")

    def test_functional_collectives(self):
        run("rank_torch.py", "functional")

    def test_functors(self):
        """The first call with a type compiles; the cache belongs to the test."""
        with tempfile.TemporaryDirectory() as cache:
            for ranks in (1, 3):
                run("rank_torch_functors.py", "functors", ranks=ranks, environment={"XDG_CACHE_HOME": cache})

    def test_gradients_of_training(self):
        run("rank_torch.py", "training")
        run("rank_torch_life.py", "joined")

    def test_a_late_rank_is_named(self):
        for case in ("late", "late_message", "late_barrier", "late_gradients"):
            with self.subTest(case=case):
                run("rank_torch.py", case)

    def test_orders_of_memory_and_refusals(self):
        run("rank_torch_life.py", "orders", "refusals", "lazy_parts", "inference", "lost_store")

    def test_debug_level(self):
        run("rank_torch_life.py", "detail")

    def test_callbacks_that_call_the_group(self):
        run("rank_torch_life.py", "callbacks")

    def test_ends_of_groups(self):
        for case in ("late_end", "one_store", "forked"):
            with self.subTest(case=case):
                run("rank_torch_life.py", case)

    def test_failed_and_late_parts(self):
        for case in ("late_coalesced", "broken_message", "given_up", "never_received"):
            with self.subTest(case=case):
                run("rank_torch_life.py", case, ranks=2)

    def test_a_process_that_ends_with_an_exception(self):
        """Its calls are not done; it ends at once, and the others are told the exception."""
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(launch.free_port()), "OMP_NUM_THREADS": "1"}
        results = launch.wait(launch.start("rank_torch_exit.py", 2, environment=shared), limit=90)
        self.assertEqual([code for code, _ in results], [0, 1], results)
        self.assertIn("rank 1 ended with KeyError", results[0][1])

    def test_abort_ends_waits(self):
        run("rank_torch.py", "abort")

    def run_played(self, *cases, ranks=3, script="rank_torch.py"):
        """Tensors count as those of GPUs, and libnccl for CPU ranks serves them."""
        for case in cases:
            with self.subTest(case=case):
                run(script, *case.split(), ranks=ranks, environment={"PLAYED_CUDA": "1"})

    @unittest.skipIf(dist and ccl._build.cuda, "the library is for GPUs")
    def test_played_gpus(self):
        self.run_played("reductions movements layouts", "works functional training", "groups crossing")

    @unittest.skipIf(dist and ccl._build.cuda, "the library is for GPUs")
    def test_played_gpus_streams_and_failures(self):
        self.run_played("played_calls", "own_messages", "failed_communicator", "late", "operators")
        self.run_played("played", script="rank_torch_functors.py")

    @unittest.skipIf(dist and ccl._build.cuda, "the library is for GPUs")
    def test_played_gpus_graphs_orders_and_ends(self):
        self.run_played("orders refusals captured joined", "broken_device", "broken_batch", "played_end",
                        script="rank_torch_life.py")  # fmt: skip

    @unittest.skipUnless(importlib.util.find_spec("torchcomms"), "torchcomms is not installed")
    def test_torchcomms(self):
        for ranks in (2, 4):
            run("rank_torchcomms.py", ranks=ranks)

    def test_name_of_another_vendor_is_left_alone(self):
        import ccl.torch

        self.assertIn("ccl_comm", dist.Backend.backend_list)
        self.assertNotIn("ccl", dist.Backend.backend_list)
        ccl.torch.register()  # a second time

    def test_plug_ins_of_engines(self):
        """vLLM's, SGLang's and FlashInfer's interfaces, by stand-ins."""
        for ranks in (2, 3):
            run("rank_inference.py", "off", "sizes", "vllm", "sglang", ranks=ranks)
        run("rank_inference.py", "examples", ranks=1)

    @unittest.skipIf(dist and ccl._build.cuda, "the library is for GPUs")
    def test_plug_ins_of_engines_on_played_gpus(self):
        self.run_played("sizes vllm", "sglang", script="rank_inference.py")

    def test_examples(self):
        for example in ("ddp.py", "fsdp.py", "inference.py"):
            with self.subTest(example=example):
                run(ROOT / "examples/python" / example)

    def test_training_beside_gloo(self):
        """The benchmark's comparison, on CPU ranks: two ranks of both backends have the same bits."""
        command = [sys.executable, ROOT / "benchmarks/python/training.py", "--cpu", "--steps", "30", "--rounds", "1",
                   "--width", "16"]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for kind in ("ddp", "fsdp2"):
            self.assertRegex(done.stdout, rf"(?m)^{kind}: .*losses, norms and weights equal$")

    def test_blocks_of_the_page_run(self):
        blocks = re.findall(r"(?:<!-- needs: (\w+) -->\n)?```python\n(.*?)```", PAGE.read_text(), re.S)
        self.assertGreater(len(blocks), 2)
        for number, (needed, block) in enumerate(blocks, 1):
            if needed and not importlib.util.find_spec(needed):  # no module is called gpu
                continue
            with self.subTest(block=number), tempfile.TemporaryDirectory() as folder:
                script = Path(folder) / "block.py"
                script.write_text(block)
                run(script, environment={"XDG_CACHE_HOME": folder})


if __name__ == "__main__":
    unittest.main(verbosity=2)
