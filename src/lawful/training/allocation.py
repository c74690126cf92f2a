"""Memory that is kept between steps, rather than given back to the system and asked for again."""

from __future__ import annotations

import ctypes

TRIM, MAP = -1, -3
"""Options of glibc's `mallopt`: how much is free before some is given back, and the least size that is mapped."""
LARGEST = 2**30
"""The size in bytes from which on memory is mapped for one tensor alone."""


def keep_memory() -> bool:
    """Lets the C library keep memory that tensors have freed, and says whether it does.

    A step frees and allocates the same sizes again and again. glibc maps large ones one by one and gives them back at
    once, so that the system has to clear every page of them at every step: for small models on a processor that can
    take longer than the arithmetic. Numbers do not change; the process holds on to what it needed at most. On systems
    with another C library it does nothing.

    Examples:
        >>> keep_memory() in (True, False)
        True
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError, TypeError):  # another C library
        return False
    return bool(mallopt(MAP, LARGEST)) and bool(mallopt(TRIM, 2**31 - 1))
