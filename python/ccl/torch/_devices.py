"""Streams and events of GPUs, as the backend takes them. Tests put others in their place."""

from __future__ import annotations

from typing import Any

import torch

from .._cuda import allow_other_captures

__all__ = ["allow_other_captures", "future", "has_gpu", "is_gpu", "numbered", "streams"]
streams: Any = torch.cuda


def is_gpu(tensor: torch.Tensor) -> bool:
    return tensor.is_cuda


def has_gpu(device: Any) -> bool:
    return torch.device(device).type == "cuda"


def future(device: torch.device) -> torch.futures.Future[Any]:
    """Returns a future whose value is complete when streams of `device` are."""
    return torch.futures.Future(devices=[device])


def numbered(device: Any) -> torch.device:
    """Returns the device with its number. One without is the current one."""
    device = torch.device(device)
    return device if device.index is not None else torch.device("cuda", streams.current_device())
