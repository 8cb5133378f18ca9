"""Reductions of one's own: C++ functors that are compiled when a call first needs them."""

from __future__ import annotations

import functools
import os
import stat
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence

from . import _core
from ._errors import CompileError, Error, InvalidArgumentError, InvalidUsageError, TimedOutError

if TYPE_CHECKING:
    import ctypes

__all__ = ["Functor"]

_FLAGS = ("-std=c++20", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_COMPILE_LIMIT_S = 120.0
_VERSION_LIMIT_S = 60.0
# Types of 16 and 8 bits that are no integers are added up in float.
_COMBINED = {"float": "float", "half": "float", "bfloat16": "float", "f8e4m3": "float",
             "f8e5m2": "float", "double": "double"}  # fmt: skip


def combined_type(element: str) -> str:
    """Returns the C++ type in which elements of a type of `_core.types` are combined."""
    return _COMBINED.get(element, f"std::{element}_t")


# Functors of this process. Compiled graphs of PyTorch name them by their keys, and may outlive them.
by_key: dict[str, Functor] = {}

_BEFORE = """#include <cstdint>
#include <type_traits>
"""
_AFTER = """
#line 1 "ccl: check of the functor"
namespace {
using Functor_ = @NAME@;
using Value_ = @TYPE@;
template <class F>
constexpr bool commutes_() {
  if constexpr (requires { F::commutative; }) return F::commutative;
  return true;
}
static_assert(std::is_default_constructible_v<Functor_> && std::is_empty_v<Functor_>,
              "ccl: @NAME@ must be a struct without data members; write its values into its operator");
static_assert(std::is_invocable_r_v<Value_, const Functor_&, const Value_&, const Value_&>,
              "ccl: @NAME@ must have: @TYPE@ operator()(const @TYPE@&, const @TYPE@&) const");
static_assert(commutes_<Functor_>(),
              "ccl: @NAME@ states that it is not commutative, which functors from Python must be");
Value_ combine_(Value_ a, Value_ b) noexcept { return Functor_{}(a, b); }
struct Exported_ {
  Value_ (*combine)(Value_, Value_) noexcept;
  const char* label;
};
}  // namespace
extern "C" __attribute__((visibility("default"))) const Exported_ ccl_functor;
const Exported_ ccl_functor = {combine_, "@LABEL@"};
"""


class Functor:
    """Reduction of one's own, as a C++ struct. Takes the place of ``op`` in calls.

    The struct has ``T operator()(const T& a, const T& b) const``, or a template of it. `T` is the
    type of the elements, or ``float`` for floating-point types of 16 and 8 bits. It must be
    associative and commutative, hold no data members, and not throw. All ranks pass the same source.

    The compiler runs when a rank first reduces a type with it. Its result for CPU ranks is kept in
    ``$XDG_CACHE_HOME/ccl/functors`` (default: ``~/.cache``). With ``check=True``, CPU ranks whose
    sources differ get `MismatchError`.

    Ranks of GPUs compile the same source by CUDA's run-time compiler (NVRTC). Its functions need no
    ``__device__``. Each rank combines its share of the elements in the order of ranks, by a kernel.
    Such a call takes memory of its device: 512 KiB, or 64 MiB for long messages.

    Parameters
    ----------
    name : str
        Name of the struct, with its namespace.
    source : str, optional
        C++ text that defines the struct, and includes what it needs.
    header : path, optional
        File that defines the struct, in place of `source`.
    flags : sequence of str
        More arguments of the compiler, such as ``-I`` and ``-march=native``. NVRTC gets those that
        begin with ``-I``, ``-D`` and ``-U``.
    compiler : str, optional
        Command of a C++20 compiler. Default: ``CXX``, or ``c++``.

    Raises
    ------
    CompileError
        By the first call with a type: the compiler refused the source. The message has its output.
    TimedOutError
        By the first call with a type: the compiler did not end, or did not tell its version, in time.

    Examples
    --------
    >>> import ccl, numpy
    >>> clamped = ccl.Functor("Clamped", '''
    ... #include <algorithm>
    ... struct Clamped {
    ...   float operator()(float a, float b) const { return std::min(a + b, 100.0f); }
    ... };''')
    >>> with ccl.Communicator.from_env() as comm:
    ...     print(comm.all_reduce(numpy.ones(2, "float32"), clamped))
    [1. 1.]
    """

    def __init__(
        self,
        name: str,
        source: str | None = None,
        *,
        header: str | os.PathLike[str] | None = None,
        flags: Sequence[str] = (),
        compiler: str | None = None,
    ) -> None:
        import hashlib

        for what, given in {"name": name, "source": source, "compiler": compiler}.items():
            if not isinstance(given, str) and (what == "name" or given is not None):
                raise TypeError(f"{what} of a functor is {given!r}, a {type(given).__name__}; give a string")
        if not all(part.isidentifier() and part.isascii() for part in name.split("::")):
            raise InvalidArgumentError(
                f'{name!r} is no name of a C++ struct; give one such as "Clamped" or "mine::Clamped"'
            )
        if (source is None) == (header is None):
            raise InvalidArgumentError(
                f"functor {name} needs either source= or header=, and not both; give the text of the "
                "struct, or the file that defines it"
            )
        if isinstance(flags, str):
            raise TypeError(f"flags of functor {name} is a string, {flags!r}; give a sequence of arguments")
        flags = tuple(flags)
        for flag in flags:
            if not isinstance(flag, str):
                raise TypeError(f"a flag of functor {name} is {flag!r}, a {type(flag).__name__}; give strings")
        if header is not None:
            path = Path(header).resolve()
            if not path.is_file():
                raise InvalidArgumentError(f"functor {name}: there is no file {path}; give header= a file")
            source, compared = f'#include "{path}"', path.read_bytes()
        else:
            compared = str(source).encode()
        self.name = name
        self._given = name, None if header else source, str(path) if header else None, flags, compiler
        # Descriptions of calls have 15 characters for it, so the source's hash is first.
        self._label = f"{hashlib.sha256(compared).hexdigest()[:8]} {name}"
        self._text = f'#line 1 "functor {name}"\n{source}\n'
        self._flags = flags
        self._compiler = _command(name, compiler or os.environ.get("CXX") or "c++")
        how = "\0".join([self._label, *self._compiler, "", *self._flags]).encode() + compared
        self._key = f"{name} {hashlib.sha256(how).hexdigest()}"
        by_key[self._key] = self
        self._loaded: dict[str, tuple[int, ctypes.CDLL]] = {}
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<ccl.Functor {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:  # pickles: another process compiles it, or has it in its cache
        return (_rebuild, self._given)

    def _address(self, type: int) -> int:
        """Returns the address of the compiled functor for a type of `_core.types`."""
        import ctypes

        combined = combined_type(_core.types[type][0])
        with self._lock:  # ranks may be threads
            if combined not in self._loaded:
                library = self._load(self._library(combined))
                exported = ctypes.c_char.in_dll(library, "ccl_functor")
                self._loaded[combined] = ctypes.addressof(exported), library
            return self._loaded[combined][0]

    def _load(self, path: Path) -> ctypes.CDLL:
        import ctypes

        try:
            return ctypes.CDLL(str(path))
        except OSError as error:
            raise CompileError(
                f"functor {self.name}: its extension does not load ({error}); link what it needs by "
                f"flags=, or delete {path} if it is damaged"
            ) from error

    def _library(self, type: str) -> Path:
        """Returns the extension for a type, which is compiled unless the cache has it."""
        import hashlib
        import tempfile

        command = [*self._compiler, *_FLAGS, *self._flags]
        expand = [*self._compiler, *_FLAGS[:1], *self._flags, "-E", "-P"]
        preprocessed = self._run(expand, _BEFORE + self._text, type)  # with all that the source includes
        after = _AFTER.replace("@NAME@", self.name).replace("@TYPE@", type)
        text = _BEFORE + self._text + after.replace("@LABEL@", self._label)
        built = [preprocessed, text, *command, _version(tuple(self._compiler))]
        key = hashlib.sha256("\0".join(built).encode()).hexdigest()
        library = _cache() / f"{key}.so"
        if library.exists():
            return library
        try:
            made, at = tempfile.mkstemp(suffix=".so", dir=library.parent)
            os.close(made)
            try:
                self._run([*command, "-o", at], text, type)
                os.replace(at, library)  # other ranks see the whole file or none
            finally:
                Path(at).unlink(missing_ok=True)
        except Error:
            raise
        except OSError as error:
            raise InvalidUsageError(
                f"functor {self.name} cannot be put into the cache of functors, {library.parent} "
                f"({error}); set XDG_CACHE_HOME to a folder of yours that has space"
            ) from error
        return library

    def _run(self, command: list[str], text: str, type: str) -> str:
        import subprocess

        try:
            done = subprocess.run(
                [*command, "-x", "c++", "-"], input=text, capture_output=True, text=True,
                errors="replace", timeout=_COMPILE_LIMIT_S,
            )  # fmt: skip
        except OSError as error:
            raise CompileError(
                f"functor {self.name}: the compiler {command[0]!r} does not start ({error}); install a "
                "C++20 compiler, or name one by CXX or compiler="
            ) from error
        except subprocess.TimeoutExpired as error:
            raise TimedOutError(
                f"functor {self.name}: {command[0]!r} did not end within {_COMPILE_LIMIT_S:g} s; make "
                "its source smaller"
            ) from error
        if done.returncode != 0:
            raise CompileError(
                f"functor {self.name} does not compile for elements that are combined in {type} "
                f"({command[0]} ended with {done.returncode}):\n{done.stderr.strip()}"
            )
        return done.stdout


def _rebuild(name: str, source: str | None, header: Any, flags: Sequence[str], compiler: str | None) -> Functor:
    return Functor(name, source, header=header, flags=flags, compiler=compiler)


def _command(name: str, text: str) -> list[str]:
    """Returns the words of a compiler's command."""
    import shlex

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidArgumentError(
            f"functor {name}: the compiler's command {text!r} cannot be split into words ({error})"
        ) from None
    if not words:
        raise InvalidArgumentError(f"functor {name}: the compiler's command {text!r} is blank")
    return words


@functools.lru_cache
def _version(compiler: tuple[str, ...]) -> str:
    """Returns what the compiler says of its version; an update compiles anew."""
    import subprocess

    try:
        return subprocess.run(
            [*compiler, "--version"], capture_output=True, text=True, errors="replace",
            timeout=_VERSION_LIMIT_S,
        ).stdout  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise TimedOutError(
            f"the compiler {compiler[0]!r} did not tell its version within {_VERSION_LIMIT_S:g} s "
            f"({compiler[0]} --version hangs); name another one by CXX or compiler="
        ) from error


def _cache() -> Path:
    """Returns the cache's folder, which only this user may write: its files run in this process."""
    root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    folder = Path(root, "ccl", "functors")
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        found = folder.stat()
    except OSError as error:
        raise InvalidUsageError(
            f"the cache of functors, {folder}, cannot be made ({error}); set XDG_CACHE_HOME to a "
            "folder of yours"
        ) from error
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InvalidUsageError(
            f"others than this user may write the cache of functors, {folder}, whose files would run "
            "here; make it yours alone (chmod 700), or set XDG_CACHE_HOME"
        )
    return folder
