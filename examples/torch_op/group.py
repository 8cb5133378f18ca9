"""The ranks of kernels that communicate, by the C interface of group.cuh."""

import ctypes
import os
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist


class Group:
    """This rank's part of a group that a library makes.

    `create` is the name of its function, which takes the id, the rank, the number of ranks, the GPU and
    `more`. The process group of torch.distributed hands the id to all ranks.
    """

    def __init__(self, path: str, create: str, *more: Any) -> None:
        self.library = ctypes.CDLL(path)
        self.library.group_error.restype = ctypes.c_char_p
        self.library.group_status.argtypes = self.library.group_destroy.argtypes = [ctypes.c_void_p]
        make = getattr(self.library, create)
        make.restype = ctypes.c_void_p
        self.rank, self.ranks = dist.get_rank(), dist.get_world_size()
        self.gpu = int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count()
        torch.cuda.set_device(self.gpu)
        text = ctypes.create_string_buffer(257)
        if self.rank == 0:
            self.check(self.library.group_id(text))
        shared = [text.value]
        dist.broadcast_object_list(shared)
        self.handle = make(shared[0], self.rank, self.ranks, self.gpu, *more)
        self.check(0 if self.handle else 1)

    def function(self, name: str, arguments: Sequence[Any], returns: Any = ctypes.c_int) -> Any:
        """Returns a function of the library whose first argument is the group."""
        found = getattr(self.library, name)
        found.argtypes, found.restype = [ctypes.c_void_p, *arguments], returns
        return lambda *given: found(self.handle, *given)

    def check(self, code: int) -> None:
        if code != 0:
            raise RuntimeError(self.library.group_error().decode())

    def status(self) -> None:
        """Raises the failure of a kernel or of another rank."""
        self.check(self.library.group_status(self.handle))

    def close(self) -> None:
        """Ends the group, on all ranks."""
        handle, self.handle = self.handle, None
        self.check(self.library.group_destroy(handle))
