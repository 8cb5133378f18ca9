"""What the plug-ins of inference engines share."""

from __future__ import annotations

import importlib
import os

from . import nccl
from ._errors import BadSettingError, NotSupportedError

SETTING = "CCL_INFERENCE"


def wanted() -> bool:
    """True if the plug-ins are to work in this process."""
    value = os.environ.get(SETTING, "0").strip()
    if value not in ("", "0", "1"):
        raise BadSettingError(f"{SETTING} is {value!r}; set it to 1, or to 0")
    return value == "1"


def use_library(variable: str) -> None:
    """Makes the engine open ccl's ``libnccl.so.2``, where the variable names none and the wheel has it."""
    if not os.environ.get(variable):
        try:
            os.environ[variable] = str(nccl.library())
        except NotSupportedError:
            pass  # a wheel for CPU ranks; the engine's own library stays


def one_order(*switches: str) -> None:
    """Gives reductions one order where a switch of the engine asks for equal bits."""
    if any(os.environ.get(name, "").strip().lower() in ("1", "true") for name in switches):
        os.environ.setdefault("CCL_DETERMINISTIC", "1")


def use_flashinfer() -> bool:
    """Puts ccl's fused all-reduce in the place of FlashInfer's. False if FlashInfer has none here."""
    try:
        comm = importlib.import_module("flashinfer.comm")
    except ImportError:
        return False
    if not hasattr(comm, "allreduce_fusion"):
        return False
    from .torch import flashinfer

    flashinfer.install(comm)
    return True
