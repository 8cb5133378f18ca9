"""Operator of PyTorch whose kernel communicates while it computes, by <ccl/device.cuh>.

Build the library with CUDA on, then run one process for each GPU:
    cmake --build build --target softmax_op
    torchrun --nproc-per-node 2 examples/torch_op/softmax_op.py build/examples/libsoftmax_op.so
"""

import ctypes
import sys

import torch
import torch.distributed as dist
from group import Group


class Softmax:
    """Softmax of rows whose columns are spread over the ranks of a group."""

    def __init__(self, path: str) -> None:
        self.group = Group(path, "softmax_create")
        self._run = self.group.function("softmax_run", [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p])

    def run(self, data: torch.Tensor) -> None:
        """Queues the softmax of this rank's columns on the current stream, in place."""
        if data.dtype != torch.float32 or data.dim() != 2 or not data.is_cuda or not data.is_contiguous():
            raise ValueError(f"{data.dtype} {tuple(data.shape)} on {data.device}; pass a contiguous float32 matrix on a GPU")
        rows, columns = data.shape
        stream = torch.cuda.current_stream(data.device).cuda_stream
        self.group.check(self._run(data.data_ptr(), rows, columns, stream))


softmax: Softmax


# An operator, so that torch.compile keeps the call and knows what it writes.
@torch.library.custom_op("ccl_example::softmax_", mutates_args=("data",))
def softmax_(data: torch.Tensor) -> None:
    softmax.run(data)


@softmax_.register_fake
def _(data: torch.Tensor) -> None:
    return None


def main() -> None:
    global softmax
    dist.init_process_group("gloo")  # for the id alone
    softmax = Softmax(sys.argv[1])
    rank, ranks = softmax.group.rank, softmax.group.ranks
    torch.manual_seed(0)  # the same rows on all ranks
    rows, columns = 300, 1000
    whole = torch.randn(rows, columns * ranks)
    wanted = torch.softmax(whole, dim=1)[:, columns * rank : columns * (rank + 1)]
    step = torch.compile(lambda data: softmax_(data), fullgraph=True)
    for call in (softmax_, step):
        mine = whole[:, columns * rank : columns * (rank + 1)].contiguous().cuda()
        call(mine)
        torch.cuda.synchronize()
        softmax.group.status()
        error = (mine.cpu() - wanted).abs().max().item()
        assert error < 1e-6, error
    print(f"rank {rank} of {ranks}: the largest error is {error:.1e}")
    softmax.group.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
