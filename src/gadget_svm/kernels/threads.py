"""Running a kernel over ranges of nodes on several cores.

A plain thread pool over nogil kernels: numba's own work-queue layer aborts when two Python threads enter it.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WORTH_SHARING = 100_000
"""Below so many numbers touched, handing work to another thread costs more than it saves."""


class Team:
    """Some threads that share the nodes of a block. Which thread does a node never changes its bits."""

    def __init__(self, size: int = 1, worth_sharing: int = WORTH_SHARING) -> None:
        self.size = max(1, size)
        self.worth_sharing = worth_sharing
        self._pool: ThreadPoolExecutor | None = None

    @classmethod
    def of(cls, n_jobs: int | None) -> "Team":
        """As scikit-learn counts: None or -1 is every core, -2 all but one, else that many."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        if n_jobs is None:
            return cls(cores)
        if n_jobs == 0:
            raise ValueError("n_jobs=0 means no thread at all: use 1, or -1 for every core")
        return cls(n_jobs if n_jobs > 0 else max(1, cores + 1 + n_jobs))

    def run(self, kernel: Callable[..., Any], count: int, width: int, *args: Any) -> None:
        """``kernel(lo, hi, *args)`` over 0..count, shared out when count * width numbers are worth it."""
        parts = min(self.size, count)
        if parts < 2 or count * width < self.worth_sharing:
            kernel(0, count, *args)
            return
        bounds = [count * part // parts for part in range(parts + 1)]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.size - 1, thread_name_prefix="gadget")
        others = [self._pool.submit(kernel, bounds[p], bounds[p + 1], *args) for p in range(1, parts)]
        kernel(bounds[0], bounds[1], *args)
        for other in others:
            other.result()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None}  # threads do not travel

    def close(self) -> None:
        """Let the threads go; the team may be used again and starts new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None
