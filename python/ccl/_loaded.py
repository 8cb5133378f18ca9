"""Libraries named libnccl that this process has loaded."""

from __future__ import annotations

import os

_PLUGINS = ("libnccl-net", "libnccl-tuner", "libnccl-profiler", "libnccl-env")


def paths() -> list[str]:
    """Returns the paths of all mapped files that are named libnccl, in the order of addresses."""
    found: dict[str, None] = {}
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            fields = line.rstrip("\n").split(maxsplit=5)
            name = os.path.basename(fields[5]) if len(fields) == 6 else ""
            if name.startswith("libnccl") and ".so" in name and not name.startswith(_PLUGINS):
                found[fields[5]] = None
    return list(found)


def is_ccl(path: str) -> bool:
    """True if a loaded library is ccl's, which its texts of errors say."""
    import ctypes

    try:
        text = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD).ncclGetErrorString
    except (AttributeError, OSError):
        return False
    text.restype = ctypes.c_char_p
    return b"of ccl" in (text(3) or b"")  # ncclInternalError


def version(path: str) -> str | None:
    """Returns the version that a loaded library reports, such as "2.32.3"; None if it has none."""
    import ctypes

    try:
        number = ctypes.c_int()
        library = ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
        if library.ncclGetVersion(ctypes.byref(number)) != 0:
            return None
    except (AttributeError, OSError):
        return None
    value = number.value
    return f"{value // 10000}.{value // 100 % 100}.{value % 100}"
