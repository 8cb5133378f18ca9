"""CUDA devices that are played by CPU memory, for the backend of torch.distributed.

A tensor in CPU memory counts as one on a GPU. Its calls go through the package's libnccl for CPU
ranks, which runs each call at once. `log` holds what streams were told and which marks were made, in order.
"""

import contextlib

import torch

from ccl import _core
from ccl.torch import _devices

log: list[tuple] = []
capturing = False  # streams capture a graph


class Handle(int):
    """Handle of a stream for the library, which runs each call at once: 0, with a name."""

    def __new__(cls, name):
        handle = super().__new__(cls, 0)
        handle.name = name
        return handle


class Stream:
    def __init__(self, name="side"):
        self.cuda_stream = Handle(name)


class Mark:
    ended = True
    broken = False

    def __init__(self, on):
        self.on, self.captured = on, capturing
        log.append(("record", on))

    def let_wait(self, stream):
        log.append(("wait_event", stream.name, self.on))

    def reached(self):
        if Mark.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if self.captured:
            raise RuntimeError("CUDA error: operation not permitted on an event last recorded in a capture")
        return Mark.ended


class SideStream:
    def __init__(self, stream):
        self.name = stream.name

    def follow(self, current):
        log.append(("wait_stream", self.name, current.name))

    def mark(self, stream):
        return Mark(stream.name)

    def launch(self, *arguments):
        self.follow(arguments[-1])
        result = _core.launch(*arguments)
        return result, Mark(self.name) if result == 0 else None


class Streams:
    current = Stream("current")

    def Stream(self, device):
        return Stream()

    def current_stream(self, device=None):
        return self.current

    @contextlib.contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def is_current_stream_capturing(self):
        return capturing

    def current_device(self):
        return 0


def play():
    """From now on tensors in CPU memory are those of a GPU."""
    _devices.streams = Streams()
    _devices.SideStream = SideStream
    _devices.current = lambda device: _devices.streams.current.cuda_stream
    _devices.on_stream = _devices.streams.stream
    _devices.is_gpu = lambda tensor: tensor.device.type == "cpu"
    _devices.keep = lambda tensor, stream: log.append(("keep", stream.cuda_stream.name))
    _devices.has_gpu = lambda device: True
    _devices.numbered = lambda device: torch.device("cpu")
    _devices.future = lambda device: torch.futures.Future()
