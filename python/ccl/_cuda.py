"""CUDA's driver, as far as the package calls it: devices, contexts and events."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Iterator

from . import _errors

_Pointer = ctypes.c_void_p
_Int = ctypes.c_int
_POINTER_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
_EVENT_DISABLE_TIMING = 2
_CAPTURE_MODE_RELAXED = 2
_LEGACY_STREAM = 1  # 0 means it too


def driver() -> ctypes.CDLL | None:
    """Returns CUDA's driver; None if there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


def device_at(address: int) -> int | None:
    """Returns the number of the CUDA device that has the memory; None if none has it."""
    cuda = driver()
    found = _Int()
    if cuda is None or cuda.cuInit(0) != 0:
        return None
    result = cuda.cuPointerGetAttribute(
        ctypes.byref(found), _POINTER_DEVICE_ORDINAL, ctypes.c_uint64(address)
    )
    return found.value if result == 0 and found.value >= 0 else None


def check(result: int, text: str) -> None:
    """Raises the error of a result of the driver; its number takes the place of the braces in `text`."""
    if result != 0:
        raise _errors.create("cuda", text.format(f"CUresult {result}"), -1, -1, result, "", "")


def check_driver(device: int) -> None:
    """Fails without CUDA's driver: the library would make a CPU rank."""
    if driver() is None:
        raise _errors.NotSupportedError(
            f"CUDA device {device} cannot be used (CUDA's driver, libcuda.so.1, is not there); leave "
            "out device= for a CPU rank"
        )


_contexts: dict[int, ctypes.c_void_p] = {}  # primary contexts, by device


@contextlib.contextmanager
def on_device(device: int) -> Iterator[None]:
    """Runs the block with the device's primary context as that of this thread.

    Afterwards the thread has the context that it had, so that a framework's current device stays.
    """
    cuda = driver()
    if cuda is None:
        yield
        return
    text = f"CUDA device {device} cannot be used ({{}}); check the number and CUDA_VISIBLE_DEVICES"
    before = _Pointer()
    check(cuda.cuInit(0), text)
    check(cuda.cuCtxGetCurrent(ctypes.byref(before)), text)
    if device not in _contexts:
        context, handle = _Pointer(), _Int()
        check(cuda.cuDeviceGet(ctypes.byref(handle), device), text)
        check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), handle), text)
        _contexts[device] = context
    check(cuda.cuCtxSetCurrent(_contexts[device]), text)
    try:
        yield
    finally:
        cuda.cuCtxSetCurrent(before)


def wait_for_producer(device: int, producer: int, consumer: int) -> None:
    """Lets the stream `consumer` wait for what the stream `producer` has been given so far."""
    if (producer or _LEGACY_STREAM) == (consumer or _LEGACY_STREAM):
        return
    cuda = driver()
    if cuda is None:
        raise _errors.create(
            "cuda",
            f"an array names CUDA stream {producer}, and CUDA's driver (libcuda.so.1) is not there",
            -1, -1, 0, "", "",
        )  # fmt: skip
    text = f"CUDA stream {consumer} cannot wait for stream {producer} of an array ({{}})"
    event = _Pointer()
    with on_device(device):
        check(cuda.cuEventCreate(ctypes.byref(event), _EVENT_DISABLE_TIMING), text)
        try:
            check(cuda.cuEventRecord(event, _Pointer(producer)), text)
            check(cuda.cuStreamWaitEvent(_Pointer(consumer), event, 0), text)
        finally:
            cuda.cuEventDestroy_v2(event)


def allow_other_captures() -> None:
    """Lets this thread query events while another thread captures a graph."""
    cuda = driver()
    if cuda is not None:
        mode = _Int(_CAPTURE_MODE_RELAXED)
        cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))


@contextlib.contextmanager
def relaxed() -> Iterator[None]:
    """Lets this thread load code and make pools in the block while a graph is captured."""
    cuda = driver()
    assert cuda is not None
    mode = _Int(_CAPTURE_MODE_RELAXED)
    cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
    try:
        yield
    finally:
        cuda.cuThreadExchangeStreamCaptureMode(ctypes.byref(mode))
