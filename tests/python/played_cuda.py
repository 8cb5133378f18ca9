"""CUDA devices that are played by CPU memory, for the backend of torch.distributed.

A tensor in CPU memory counts as one on a GPU. Its calls go through the package's libnccl for CPU
ranks, which runs each call at once. `log` holds what streams and events were told, in order.
"""

import contextlib

import torch

from ccl.torch import _devices

log: list[tuple] = []
capturing = False  # streams capture a graph


class Stream:
    cuda_stream = 0

    def __init__(self, name="side"):
        self.name = name

    def wait_stream(self, other):
        log.append(("wait_stream", self.name, other.name))

    def wait_event(self, event):
        log.append(("wait_event", self.name, event.on))


class Event:
    on = None
    ended = True
    broken = False
    captured = False

    def record(self, stream):
        self.on, self.captured = stream.name, capturing
        log.append(("record", stream.name))

    def query(self):
        if Event.broken:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        if self.captured:
            raise RuntimeError("CUDA error: operation not permitted on an event last recorded in a capture")
        return Event.ended


class Streams:
    Event = Event
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
    _devices.is_gpu = lambda tensor: tensor.device.type == "cpu"
    _devices.has_gpu = lambda device: True
    _devices.numbered = lambda device: torch.device("cpu")
    _devices.future = lambda device: torch.futures.Future()
