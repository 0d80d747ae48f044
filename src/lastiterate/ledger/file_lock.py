"""One writer at a time, whatever process or thread it is in."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

if sys.platform == "win32":
    import msvcrt
    import os
    import time

    # A byte that no ledger reaches: what is locked there cannot be read by others.
    _FAR_AWAY = 1 << 60

    @contextmanager
    def locked(descriptor: int) -> Iterator[None]:
        """While no other open file of the same path is."""
        while True:
            os.lseek(descriptor, _FAR_AWAY, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
                break
            except OSError:
                time.sleep(0.01)
        try:
            yield
        finally:
            os.lseek(descriptor, _FAR_AWAY, os.SEEK_SET)
            msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    @contextmanager
    def locked(descriptor: int) -> Iterator[None]:
        """While no other open file of the same path is; the system unlocks what was killed."""
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
