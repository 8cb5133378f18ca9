"""Options of a communicator: their names and defaults, and their form for the engine."""

from __future__ import annotations

from typing import Any, Mapping, TypedDict

from . import _core
from ._errors import InvalidArgumentError

Given = dict[str, Any]


class Options(TypedDict, total=False):
    """Types of the options, for type checkers."""

    timeout: float | None
    init_timeout: float | None
    check: bool | None
    memory_budget: int | None
    channels: int | None
    name: str
    tune_file: str


_DEFAULTS: Given = {
    "timeout": None,
    "init_timeout": None,
    "check": None,
    "memory_budget": None,
    "channels": None,
    "name": "",
    "tune_file": "",
}
_KINDS = {
    "timeout": "seconds, or None",
    "init_timeout": "seconds, or None",
    "check": "True, False or None",
    "memory_budget": "bytes as an integer, or None",
    "channels": "an integer, or None",
    "name": "a string",
    "tune_file": "a path as a string",
}
_ENGINE_NAMES = {
    "timeout": "timeout_s",
    "init_timeout": "init_timeout_s",
    "memory_budget": "memory_budget_bytes",
}


def known(options: Mapping[str, object]) -> Given:
    """Returns `options`, if all names are those of options."""
    given = dict(options)
    unknown = sorted(set(given) - set(_DEFAULTS))
    if unknown:
        raise TypeError(
            f"unknown option{'s' if len(unknown) > 1 else ''} {', '.join(unknown)}; take "
            f"{', '.join(_DEFAULTS)}"
        )
    for_engine(_DEFAULTS | given)  # whose types it checks
    return given


def complete(options: Mapping[str, object]) -> Given:
    """Returns all options: those of `options`, and defaults."""
    return _DEFAULTS | known(options)


def for_engine(given: Given) -> _core.Options:
    """Returns all options as the engine of CPU ranks takes them."""
    options = _core.Options()
    for name, value in given.items():
        try:
            setattr(options, _ENGINE_NAMES.get(name, name), value)
        except TypeError:
            if isinstance(value, int) and "integer" in _KINDS[name]:
                raise InvalidArgumentError(
                    f"{name} is {value}, which is too large a number"
                ) from None
            if isinstance(value, str) and "string" in _KINDS[name]:
                raise InvalidArgumentError(
                    f"{name} is {value!r}, which has characters that are not those of a text (UTF-8)"
                ) from None
            raise TypeError(
                f"{name} is {value!r}, a {type(value).__name__}; give {_KINDS[name]}"
            ) from None
    return options
