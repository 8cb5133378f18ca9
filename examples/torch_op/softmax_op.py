"""Operator of PyTorch whose kernel communicates while it computes, by <ccl/device.cuh>.

Build the library with CUDA on, then run one process for each GPU:
    cmake --build build --target softmax_op
    torchrun --nproc-per-node 2 examples/torch_op/softmax_op.py build/examples/libsoftmax_op.so
"""

import ctypes
import os
import sys

import torch
import torch.distributed as dist


class Softmax:
    """Softmax of rows whose columns are spread over the ranks of a group."""

    def __init__(self, path: str, rank: int, ranks: int, gpu: int) -> None:
        self._library = ctypes.CDLL(path)
        self._library.softmax_error.restype = ctypes.c_char_p
        self._library.softmax_create.restype = ctypes.c_void_p
        for name, arguments in {
            "softmax_id": [ctypes.c_char_p],
            "softmax_create": [ctypes.c_char_p, ctypes.c_int, ctypes.c_int, ctypes.c_int],
            "softmax_run": [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_void_p],
            "softmax_status": [ctypes.c_void_p],
            "softmax_destroy": [ctypes.c_void_p],
        }.items():
            getattr(self._library, name).argtypes = arguments
        text = ctypes.create_string_buffer(257)
        if rank == 0:
            self._check(self._library.softmax_id(text))
        shared = [text.value]
        dist.broadcast_object_list(shared)
        self._group = self._library.softmax_create(shared[0], rank, ranks, gpu)
        self._check(0 if self._group else 1)

    def _check(self, code: int) -> None:
        if code != 0:
            raise RuntimeError(self._library.softmax_error().decode())

    def run(self, data: torch.Tensor) -> None:
        """Queues the softmax of this rank's columns on the current stream, in place."""
        if data.dtype != torch.float32 or data.dim() != 2 or not data.is_cuda or not data.is_contiguous():
            raise ValueError(f"{data.dtype} {tuple(data.shape)} on {data.device}; pass a contiguous float32 matrix on a GPU")
        rows, columns = data.shape
        stream = torch.cuda.current_stream(data.device).cuda_stream
        self._check(self._library.softmax_run(self._group, data.data_ptr(), rows, columns, stream))

    def status(self) -> None:
        """Raises the failure of a kernel or of another rank."""
        self._check(self._library.softmax_status(self._group))

    def close(self) -> None:
        """Ends the group, on all ranks."""
        group, self._group = self._group, None
        self._check(self._library.softmax_destroy(group))


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
    rank, ranks = dist.get_rank(), dist.get_world_size()
    gpu = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
    torch.cuda.set_device(gpu)
    softmax = Softmax(sys.argv[1], rank, ranks, gpu)
    torch.manual_seed(0)  # the same rows on all ranks
    rows, columns = 300, 1000
    whole = torch.randn(rows, columns * ranks)
    wanted = torch.softmax(whole, dim=1)[:, columns * rank : columns * (rank + 1)]
    step = torch.compile(lambda data: softmax_(data), fullgraph=True)
    for call in (softmax_, step):
        mine = whole[:, columns * rank : columns * (rank + 1)].contiguous().cuda()
        call(mine)
        torch.cuda.synchronize()
        softmax.status()
        error = (mine.cpu() - wanted).abs().max().item()
        assert error < 1e-6, error
    print(f"rank {rank} of {ranks}: the largest error is {error:.1e}")
    softmax.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
