"""A barrier for threads inside one compiled call: a round of all nodes ends before the next one begins.

Returning to the interpreter for every round takes tens of microseconds, as long as a round of a small network. Owns the
counter; `threads.ThreadTeam` owns the threads.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from gadget_svm.core.types import Ints
from gadget_svm.kernels.compiler import DISABLED, LowLevel, compiled

SPINS = 4000
"""Reads of the counter before a thread yields its core: longer than threads differ in a round that is shared evenly."""
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
