"""Run a function in a copy of this process, without side effects on this one.

The copy is a fork: it shares this process's memory, at no cost until it writes to it,
and whatever it does to models, optimizers and Python objects happens to its own copies.
Effects outside the process are suppressed: what it prints and sends is discarded, files
that it writes are kept in memory, where it can read them again, and whatever else would
change a file, start a process or reach another computer is refused, by the kernel where
Linux supports it (Landlock). A copy that takes too long is killed.

Only the calling thread survives in a copy, and accelerators do not work there at all;
``why_no_copy`` reports where a copy is not possible.
"""

import builtins
import ctypes
import functools
import gc
import io
import os
import pickle
import random
import select
import signal
import stat
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NoReturn, TypeVar

from dpaudit.errors import DpAuditError

__all__ = ["CopyFailedError", "in_copy", "why_no_copy"]

T = TypeVar("T")

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
# Events of Python's audit hooks for effects outside the process.
_OUTSIDE: Final = (
    "os.chmod",
    "os.chown",
    "os.exec",
    "os.kill",
    "os.link",
    "os.mkdir",
    "os.posix_spawn",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.spawn",
    "os.symlink",
    "os.system",
    "os.truncate",
    "os.utime",
    "shutil.",
    "socket.bind",
    "socket.connect",
    "socket.sendto",
    "sqlite3.connect",
    "subprocess.Popen",
    "tempfile.",
)
_READ: Final = 1 << 20
# Of glibc's mallopt: up to which size memory is taken from the heap, and how much that
# is free there is kept, as asking for new memory takes longer than most computations.
_KEPT: Final = {-3: 1 << 27, -1: 1 << 28}


class CopyFailedError(Exception):
    """The function did not return; the message gives the reason."""


def why_no_copy() -> str | None:
    """Return why this process cannot be copied; None if it can."""
    if not sys.platform.startswith("linux"):
        return "platform"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "accelerator"
    if "jax" in sys.modules and sys.modules["jax"]._src.xla_bridge._backends:
        return "jax"
    return None


def in_copy(run: Callable[[], T], *, seconds: float) -> T:
    """Return what a function returns in a copy of this process.

    Args:
        run: The function; its return value and errors of this package are pickled.
        seconds: Time limit, after which the copy is killed.

    Raises:
        CopyFailedError: It raised another error, ended without output or took too long.
        DpAuditError: As raised by the function.

    Example:
        >>> kept = []
        >>> def grow():
        ...     kept.append(1)
        ...     return len(kept)
        >>> in_copy(grow, seconds=60), kept
        (1, [])
    """
    reader, writer = os.pipe()
    drawn = random.getstate()  # which Python reseeds in each fork
    sys.stdout.flush()
    sys.stderr.flush()
    _c("malloc_trim", 0)  # or a copy within a copy holds what is free here, too
    gc.freeze()  # leaves existing objects untouched, so that their memory stays shared
    process = os.fork()
    if not process:
        os.close(reader)
        _be_a_copy(run, writer, drawn)
    gc.unfreeze()
    os.close(writer)
    ended = False
    try:
        output = _read(reader, seconds)
        ended = True
    finally:
        os.close(reader)
        if not ended:
            os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    value: T = _result(output)
    return value


def _c(name: str, *arguments: int) -> None:
    """Call a function of the C library, if it has it."""
    with suppress(OSError, AttributeError):
        getattr(ctypes.CDLL(None), name)(*arguments)


def _read(reader: int, seconds: float) -> bytes:
    """Return all that a copy writes until it ends."""
    parts: list[bytes] = []
    last = time.monotonic() + seconds
    while True:
        ready, _, _ = select.select([reader], [], [], max(last - time.monotonic(), 0))
        if not ready:
            raise CopyFailedError(f"it took longer than {seconds:.0f} seconds")
        part = os.read(reader, _READ)
        if not part:
            return b"".join(parts)
        parts.append(part)


def _result(found: bytes) -> Any:  # noqa: ANN401 (what the function returns)
    """Return what a copy returned; raise what it raised."""
    if not found:
        raise CopyFailedError("it ended without a word")
    value, error, message = pickle.loads(found)
    if error is not None:
        raise error
    if message is not None:
        raise CopyFailedError(message)
    return value


def _be_a_copy(
    run: Callable[[], object], writer: int, drawn: tuple[Any, ...]
) -> NoReturn:
    """Run a function, write what it returns, and end."""
    try:
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))  # with its parent
        for option, size in _KEPT.items():
            _c("mallopt", option, size)
        gc.disable()
        random.setstate(drawn)
        _shut_off(writer)
        try:
            output = pickle.dumps((run(), None, None))
        except DpAuditError as error:
            output = pickle.dumps((None, error, None))
        except BaseException as error:
            output = pickle.dumps((None, None, _described(error)))
        with os.fdopen(writer, "wb", closefd=False) as file:
            file.write(output)
    finally:
        os._exit(0)


def _described(error: BaseException) -> str:
    """Return an error's type and message, with the line where it was raised."""
    where = traceback.extract_tb(error.__traceback__)
    last = f", in {where[-1].name}, line {where[-1].lineno}" if where else ""
    return f"{type(error).__name__}: {error}{last}"


def _shut_off(keep: int) -> None:
    """Suppress all effects of this process outside it."""
    null = os.open(os.devnull, os.O_RDWR)
    for name in os.listdir("/proc/self/fd"):
        number = int(name)
        with suppress(OSError):  # the listing itself is closed by now
            if number not in (keep, null) and _leads_outside(number):
                os.dup2(null, number)
    files = _Files()
    builtins.open = io.open = functools.partial(files.open, builtins.open)
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)  # the threads of its pool do not survive a fork
        torch.save = functools.partial(files.by_path, torch.save, "wb")
        torch.load = functools.partial(files.by_path, torch.load, "rb")
    _by_the_kernel()
    sys.addaudithook(_refuse)


def _leads_outside(number: int) -> bool:
    """Return whether a descriptor is standard I/O, a socket, pipe or output file."""
    mode = os.fstat(number).st_mode
    if number < 3 or stat.S_ISSOCK(mode) or stat.S_ISFIFO(mode):
        return True
    with open(f"/proc/self/fdinfo/{number}", encoding="ascii") as file:
        flags = int(file.read().split("flags:")[1].split()[0], 8)
    return stat.S_ISREG(mode) and bool(flags & (os.O_WRONLY | os.O_RDWR))


class _Files:
    """Opens files: those that are written in memory, all others as they are."""

    def __init__(self) -> None:
        self.written: dict[str, bytes] = {}

    def open(
        self,
        opener: Callable[..., Any],
        file: Any,  # noqa: ANN401 (as of open)
        mode: str = "r",
        *arguments: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Open a file, in memory if it is for writing or was written here."""
        writing = bool({*mode} & {*"wax+"})
        path = "" if isinstance(file, int) else os.path.abspath(os.fspath(file))
        if not path or not (writing or path in self.written):
            return opener(file, mode, *arguments, **named)
        held = b"" if {*mode} & {*"wx"} else self.written.get(path, b"")
        raw = _Written(self.written, path) if writing else io.BytesIO(held)
        if writing:
            raw.write(held)
            if "r" in mode:
                raw.seek(0)
        if "b" in mode:
            return raw
        return io.TextIOWrapper(raw, encoding=named.get("encoding") or "utf-8")

    def by_path(
        self,
        function: Callable[..., Any],
        mode: str,
        *arguments: Any,  # noqa: ANN401
        **named: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Call a function that takes a file or its path with the opened file."""
        opened: list[Any] = []

        def file_of(value: Any) -> Any:  # noqa: ANN401
            if not isinstance(value, str | os.PathLike):
                return value
            opened.append(open(value, mode))  # noqa: SIM115
            return opened[-1]

        try:
            return function(
                *map(file_of, arguments),
                **{name: file_of(v) if name == "f" else v for name, v in named.items()},
            )
        finally:
            for each in opened:
                each.close()


class _Written(io.BytesIO):
    """A file in memory that is kept once it is closed."""

    def __init__(self, kept: dict[str, bytes], path: str) -> None:
        super().__init__()
        self._kept, self._path = kept, path

    def close(self) -> None:
        if not self.closed:
            self._kept[self._path] = self.getvalue()
        super().close()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse an event that would change something outside the process."""
    if event == "open":
        path, _, flags = arguments
        allowed = path == os.devnull or isinstance(path, int)
        if allowed or not (flags or 0) & _WRITING:
            return
    elif not event.startswith(_OUTSIDE):
        return
    raise PermissionError(f"a copy of the training process may not do this: {event}")


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64))


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _by_the_kernel() -> None:
    """Have Linux refuse to run, write, make or remove files, and to connect."""
    with suppress(OSError, AttributeError):
        call = ctypes.CDLL(None, use_errno=True).syscall
        version = call(444, None, 0, 1)
        if version < 1:
            return
        # Run and write files, remove and make anything; rename and truncate came later.
        files = 0b1_1111_1111_0011 | (version > 1) << 13 | (version > 2) << 14
        network = 0b11 if version > 3 else 0
        rules = _Ruleset(files=files, network=network)
        size = 16 if version > 3 else 8
        ruleset = call(444, ctypes.byref(rules), size, 0)
        null = _Rule(allowed=0b10, parent=os.open(os.devnull, os.O_PATH))
        call(445, ruleset, 1, ctypes.byref(null), 0)
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # no new privileges: required
        call(446, ruleset, 0)
