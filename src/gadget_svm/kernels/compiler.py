"""How kernels are compiled: one decorator, so that the flags on which bit-for-bit agreement rests stand once.

Owns the rule that compiled code on disk is used only while no kernel's source has changed. numba by itself looks at
the file of the function alone, not at those it calls, and would run yesterday's inner loop in today's outer one.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.registry import cpu_target

cpu_target.target_context.refresh()  # numba imports its other half on the first call; here the first fit need not wait

F = TypeVar("F", bound=Callable[..., Any])
PACKAGE = Path(__file__).parent.parent
SOURCES = ("kernels/*.py", "algorithms/*.py", "rows.py")
"""Where compiled functions, and the types they take, may stand."""


def compiled(function: F) -> F:
    """Compile with numba: cached on disk, without the interpreter's lock, in strict IEEE arithmetic."""
    dispatcher = numba.njit(nogil=True, cache=True, error_model="numpy", fastmath=False)(function)
    if not hasattr(dispatcher, "_cache"):  # NUMBA_DISABLE_JIT=1, for a debugger
        return cast(F, dispatcher)
    store = dispatcher._cache._cache_file
    store._source_stamp = (store._source_stamp, source_stamp())
    return cast(F, dispatcher)


@cache
def source_stamp() -> tuple[tuple[str, int, int], ...]:
    """Name, time and size of every file a kernel may be made of."""
    files = sorted(path for pattern in SOURCES for path in PACKAGE.glob(pattern))
    return tuple((path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in files)
