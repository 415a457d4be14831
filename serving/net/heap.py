"""Bounds the memory that the C heap of a server keeps."""

from __future__ import annotations

import ctypes
import os

ARENAS = 2
_M_ARENA_MAX = -8  # malloc.h


def share_arenas() -> None:
    """Let all threads allocate from ARENAS arenas of glibc. Arenas that exist already stay, so call it before threads start.

    By default a thread gets an arena of its own, up to 8 for each core. Each keeps what was freed in it, so a server with many
    threads takes more memory, and longer until it grows no more. MALLOC_ARENA_MAX in the environment is left in force. Other C
    libraries have no arenas.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and "MALLOC_ARENA_MAX" not in os.environ:
        mallopt(_M_ARENA_MAX, ARENAS)
