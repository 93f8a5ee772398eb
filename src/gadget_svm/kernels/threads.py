"""Kernels on several cores, each thread with a range of nodes, and a barrier for threads inside one compiled call.

At the barrier a round of all nodes ends before the next one begins. Returning to the interpreter for every round takes
tens of microseconds, as long as a round of a small network.

It is a plain thread pool, and kernels run without the interpreter's lock. numba's own work-queue layer is not used,
because it aborts if two Python threads enter it.
"""

import functools
import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np

from gadget_svm.core.types import Ints
from gadget_svm.kernels.compiler import DISABLED, LowLevel, compiled

WORTH_SHARING = 100_000
"""If a kernel touches fewer numbers than this, it runs in one thread: handing work to another would cost more."""
WORTH_A_BARRIER = 4_000
"""The same limit for threads that stay in one call and wait at a barrier after each round, which takes a
microsecond."""


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def allowed_threads() -> int:
    """Return how many threads to use if the user gives no number.

    It is the number of cores, but at most NUMBA_NUM_THREADS, OMP_NUM_THREADS and the limit that threadpoolctl has set
    for OpenMP (without OpenMP: for BLAS). Inside a joblib worker it is one, unless joblib has set NUMBA_NUM_THREADS to
    share the cores among its processes. Under `joblib.parallel_config(n_jobs=...)` it is that ``n_jobs``.
    """
    given = (os.environ.get(name, "") for name in ("NUMBA_NUM_THREADS", "OMP_NUM_THREADS"))
    limits = [_cores(), *(int(value) for value in given if value.isdigit()), *_limits_of_pools()]
    if "joblib" in sys.modules:
        backend, n_jobs = sys.modules["joblib"].parallel.get_active_backend()
        if backend.nesting_level and "NUMBA_NUM_THREADS" not in os.environ:
            limits.append(1)
        elif not backend.nesting_level and n_jobs not in (None, 1):
            limits.append(backend.effective_n_jobs(n_jobs))
    return max(1, min(limits))


@functools.lru_cache(maxsize=1)
def _thread_pools(n_modules: int) -> Any:  # noqa: ARG001
    """Return the thread pools of loaded libraries. It searches again (milliseconds) only after imports."""
    return sys.modules["threadpoolctl"].ThreadpoolController()


def _limits_of_pools() -> list[int]:
    if "threadpoolctl" not in sys.modules:  # then nothing was limited
        return []
    pools = _thread_pools(len(sys.modules)).info()
    openmp = [pool["num_threads"] for pool in pools if pool["user_api"] == "openmp"]
    return openmp or [pool["num_threads"] for pool in pools]


class ThreadTeam:
    """Threads that share the nodes of a block. The results do not depend on which thread has which node."""

    def __init__(self, size: int = 1, worth_sharing: int = WORTH_SHARING) -> None:
        self.size = max(1, size)
        self.worth_sharing = worth_sharing
        self._pool: ThreadPoolExecutor | None = None
        self._in_rounds = threading.Lock()

    @classmethod
    def of(cls, n_jobs: int | None) -> "ThreadTeam":
        """Return a team: None is `allowed_threads`, -1 every core, -2 all but one, else that many."""
        if n_jobs is None:
            return cls(allowed_threads())
        if n_jobs == 0:
            raise ValueError("n_jobs=0 means no thread at all: use 1, or -1 for every core")
        return cls(n_jobs if n_jobs > 0 else max(1, _cores() + 1 + n_jobs))

    def run(self, kernel: Callable[..., Any], count: int, width: int, *args: Any) -> None:
        """Run ``kernel(lo, hi, *args)`` over 0..count, on several threads if count * width numbers are worth it."""
        parts = min(self.size, count)
        if parts < 2 or count * width < self.worth_sharing:
            kernel(0, count, *args)
            return
        self._share(kernel, count, [args] * parts)

    def run_in_rounds(self, kernel: Callable[..., Any], count: int, width: int, *args: Any) -> None:
        """Run ``kernel(lo, hi, group, *args)`` over 0..count, with threads that wait for each other after each round.

        All threads must run at the same time. So there are no more of them than cores, and only one such call uses them
        at a time. A second call meanwhile runs in its caller's thread alone.
        """
        parts, worth = min(self.size, count, _cores()), min(self.worth_sharing, WORTH_A_BARRIER)
        if parts < 2 or not AVAILABLE or count * width < worth or not self._in_rounds.acquire(blocking=False):
            kernel(0, count, *barrier_groups(1), *args)
            return

        def releasing(lo: int, hi: int, group: BarrierGroup, *given: Any) -> None:
            try:
                kernel(lo, hi, group, *given)
            except BaseException:
                release_barrier(group)
                raise

        groups = barrier_groups(parts)
        try:
            self._share(releasing, count, [(group, *args) for group in groups])
        except BaseException:  # such as Ctrl-C before this thread has arrived
            release_barrier(groups[0])
            raise
        finally:
            self._in_rounds.release()

    def _share(self, kernel: Callable[..., Any], count: int, args: list[tuple[Any, ...]]) -> None:
        parts = len(args)
        bounds = [count * part // parts for part in range(parts + 1)]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.size - 1, thread_name_prefix="gadget")
        others = [self._pool.submit(kernel, bounds[p], bounds[p + 1], *args[p]) for p in range(1, parts)]
        kernel(bounds[0], bounds[1], *args[0])
        for other in others:
            other.result()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_pool": None, "_in_rounds": None}  # threads cannot be pickled

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _in_rounds=threading.Lock())

    def close(self) -> None:
        """End the threads; a team that is used again starts new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


SPINS = 4000
"""How often a thread reads the counter before it yields its core. In an evenly shared round no thread waits that
long."""
AVAILABLE = not DISABLED
"""False without a compiler: then nothing is atomic, threads do not run in parallel, and a group has one thread."""


class BarrierGroup(NamedTuple):
    """One of the threads that run the same call."""

    counter: Ints  # wider than a cache line, so that nothing else shares it
    number: int = 0
    size: int = 1


def barrier_groups(size: int) -> list[BarrierGroup]:
    """Return the groups of ``size`` threads of one call."""
    counter = np.zeros(16, dtype=np.int64)
    return [BarrierGroup(counter, number, size) for number in range(size)]


def _atomic(emit: Callable[[Any, Any, Any], Any]) -> Any:
    """Return an atomic operation on the first entry of an array; ``emit`` takes builder, address and number."""
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def operation(_context: Any, array: Any, _number: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = context.make_array(signature.args[0])(context, builder, arguments[0])
            return emit(builder, view.data, arguments[1])

        return types.int64(array, types.int64), codegen

    return operation


def _sched_yield() -> Any:
    from numba.core import types

    return types.ExternalFunction("sched_yield", types.intc())


_add: Any = LowLevel(lambda: _atomic(lambda builder, at, number: builder.atomic_rmw("add", at, number, "seq_cst")))
_load: Any = LowLevel(lambda: _atomic(lambda builder, at, _: builder.load_atomic(at, "seq_cst", 8)))
_yield: Any = LowLevel(_sched_yield)


@compiled
def wait_at_barrier(group: BarrierGroup, times: int) -> None:
    """Wait until all threads of the group have arrived ``times`` times, this one included."""
    if group.size == 1:
        return
    _add(group.counter, 1)
    reads = 0
    while _load(group.counter, 0) < group.size * times:
        reads += 1
        if reads > SPINS:
            _yield()


@compiled
def release_barrier(group: BarrierGroup) -> None:
    """Let all threads pass from now on. Called if one thread of the group cannot arrive."""
    _add(group.counter, 1 << 60)
