"""Files that are whole or not there, and keys that stay.

A file is written under another name beside its own, flushed to the disk, and renamed.
Whoever reads it sees the old file or the new one; an interrupt, a full disk or a loss
of power on the way leaves the old one, or none. What holds a key is never replaced: a
key that is lost takes its audit with it, and a signing key all that was signed.
"""

import errno
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE
from typing import Final

from dpaudit.errors import InvalidInputError

__all__ = [
    "SECRET",
    "check_replaceable",
    "holds_key",
    "new_file",
    "whole_file",
    "write",
]

SECRET: Final = 0o600  # mode of a file that only its owner may read
_PUBLIC: Final = 0o666  # less what the umask takes
_LARGEST_KEY: Final = 1 << 16  # bytes
_KEY_BYTES: Final = 32  # of a key of coins, in hex digits
_PEM: Final = re.compile(rb"^-----BEGIN [A-Z0-9 ]*KEY-----", re.MULTILINE)


def write(path: str | Path, text: str) -> None:
    """Write a text as a whole file, in UTF-8.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write(f"{folder}/a.txt", "whole")
        ...     Path(folder, "a.txt").read_text()
        'whole'
    """
    with whole_file(path) as draft:
        draft.write_bytes(text.encode())


@contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """Yield a draft to write to, which takes the place of ``path`` at the end.

    If the block raises, the draft is removed and what was at ``path`` stays. A link is
    followed, and a file that was there gives its mode to the new one. Pipes and devices
    are written to directly.

    Raises:
        InvalidInputError: A key is there.
        OSError: It cannot be written.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "a.txt")
        ...     with whole_file(path) as draft:
        ...         _ = draft.write_text("half")
        ...         path.exists()
        ...     path.exists()
        False
        True
    """
    target = _target(path)
    if target.exists() and not target.is_file():
        yield target
        return
    with _draft(target, _PUBLIC) as draft:
        if target.exists():
            draft.chmod(S_IMODE(target.stat().st_mode))
        yield draft
        _flush(draft)
        draft.replace(target)


@contextmanager
def new_file(path: str | Path, *, mode: int = _PUBLIC) -> Iterator[Path]:
    """Yield a draft to write to, which becomes a file that was not there before.

    Raises:
        FileExistsError: Something is there, or came to be there meanwhile.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with new_file(f"{folder}/a.key", mode=SECRET) as draft:
        ...         _ = draft.write_text("secret")
        ...     oct(Path(folder, "a.key").stat().st_mode & 0o777)
        '0o600'
    """
    target = Path(path)
    if os.path.lexists(target):
        raise _os_error(errno.EEXIST, target)
    with _draft(target, mode) as draft:
        yield draft
        _flush(draft)
        _give_name(draft, target)


def check_replaceable(path: str | Path) -> None:
    """Raise now what ``whole_file`` would raise before it yields."""
    target = _target(path)
    if target.is_file() or not target.exists():
        with _draft(target, _PUBLIC):
            pass


def holds_key(path: Path) -> bool:
    """Return whether a file holds a key of coins, or one in PEM.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     write(f"{folder}/a", "00" * 32)
        ...     holds_key(Path(folder, "a"))
        True
    """
    if not path.is_file() or path.stat().st_size > _LARGEST_KEY:
        return False
    held = path.read_bytes()
    if _PEM.search(held):
        return True
    with suppress(ValueError):
        return len(bytes.fromhex(held.decode("ascii"))) == _KEY_BYTES
    return False


def _target(path: str | Path) -> Path:
    """Return what a path leads to, if that may be replaced."""
    target = Path(os.path.realpath(path))
    if target.is_dir():
        raise _os_error(errno.EISDIR, path)
    if target.exists() and not os.access(target, os.W_OK):
        raise _os_error(errno.EACCES, path)
    if holds_key(target):
        raise InvalidInputError(
            f"{path} holds a key, and no key is overwritten; name another file"
        )
    return target


@contextmanager
def _draft(target: Path, mode: int) -> Iterator[Path]:
    """Yield an empty file beside another; it is gone at the end, unless renamed."""
    # A part of the name, as names have a largest length.
    draft = target.with_name(f".{target.name[:40]}.{token_hex(8)}.partial")
    try:
        os.close(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
    except OSError as error:
        raise _os_error(error.errno or errno.EIO, target) from error
    try:
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _flush(draft: Path) -> None:
    """Wait until the disk holds a file, so that its name is never ahead of it."""
    with draft.open("ab") as file:
        os.fsync(file.fileno())


def _give_name(draft: Path, target: Path) -> None:
    """Name a draft, and never replace what has that name already."""
    try:
        os.link(draft, target)
    except FileExistsError as error:
        raise _os_error(errno.EEXIST, target) from error
    except OSError:  # a file system without hard links: the name is taken first
        os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, SECRET))
        draft.replace(target)


def _os_error(number: int, path: str | Path) -> OSError:
    """Return an error that names the file that was asked for, and not its draft."""
    return OSError(number, os.strerror(number), str(path))
