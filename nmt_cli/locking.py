"""One process at a time writes into a folder: a lock that dies with its holder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from nmt_cli.errors import NmtError

try:
    import fcntl
except ImportError:  # not on this system: two at once are then the user's to avoid
    fcntl = None  # type: ignore[assignment]

_NAME = ".nmt-lock"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Hold a folder that is there; also after SIGKILL nothing stays locked.

    Raises:
        NmtError: if another process holds it, naming that process.
    """
    path = folder / _NAME
    handle = _open(path)
    if handle is None:
        yield
        return
    try:
        if not _lock(handle, path):
            holder = path.read_text(errors="replace").strip() or "unknown"
            raise NmtError(
                f"{folder}: is being trained by another process (pid {holder}); wait for it, stop "
                "it, or choose another folder with -o"
            )
        os.ftruncate(handle, 0)
        os.write(handle, f"{os.getpid()}\n".encode())
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
    finally:
        os.close(handle)


def _open(path: Path) -> int | None:
    """Open the lock's file, unless this system or folder can have none."""
    if fcntl is None:
        return None
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    except OSError:  # a folder that cannot be written: what writes there says so better
        return None


def _lock(handle: int, path: Path) -> bool:
    """Take the lock, if it is free and its file still the one that others would open."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    with suppress(OSError):
        return os.fstat(handle).st_ino == path.stat().st_ino
    return False
