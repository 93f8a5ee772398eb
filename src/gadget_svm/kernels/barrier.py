"""Threads inside one compiled call that wait for each other: a round of all nodes ends before the next one begins.

Going back to the interpreter for every round takes tens of microseconds, and rounds of small networks take no longer.
Owns the counting gate; who the threads are is for `threads.ThreadTeam` to say.
"""

import os
from typing import Any, NamedTuple

import numpy as np

from gadget_svm.core.types import Ints
from gadget_svm.kernels.compiler import DISABLED, LowLevel, compiled

SPINS = 4000
"""Looks at the gate before a thread offers its core to others: longer than a round that is shared evenly is uneven."""
POSSIBLE = not DISABLED
"""Without a compiler nothing is atomic, and threads take turns anyway."""


class BarrierGroup(NamedTuple):
    """A thread among those of one call."""

    gate: Ints  # where they count themselves; wider than a line of cache, which nothing else is to share
    number: int = 0
    size: int = 1


def barrier_groups(size: int) -> list[BarrierGroup]:
    """Threads for one call."""
    gate = np.zeros(16, dtype=np.int64)
    return [BarrierGroup(gate, number, size) for number in range(size)]


def _atomic_add() -> Any:
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def add(_context: Any, array: Any, _number: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = context.make_array(signature.args[0])(context, builder, arguments[0])
            return builder.atomic_rmw("add", view.data, arguments[1], "seq_cst")

        return types.int64(array, types.int64), codegen

    return add


def _atomic_load() -> Any:
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def load(_context: Any, array: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            view = context.make_array(signature.args[0])(context, builder, arguments[0])
            return builder.load_atomic(view.data, "seq_cst", 8)

        return types.int64(array), codegen

    return load


def _plain_add(array: Ints, number: int) -> int:
    array[0] += number
    return int(array[0]) - number


def _plain_load(array: Ints) -> int:
    return int(array[0])


def _sched_yield() -> Any:
    from numba.core import types

    return types.ExternalFunction("sched_yield", types.intc())


@compiled
def _no_yield() -> int:
    """Where no core can be offered: go on looking."""
    return 0


_add: Any = LowLevel(_atomic_add) if POSSIBLE else _plain_add
_load: Any = LowLevel(_atomic_load) if POSSIBLE else _plain_load
_offer: Any = LowLevel(_sched_yield) if POSSIBLE and os.name == "posix" else _no_yield


@compiled
def wait_at_barrier(party: BarrierGroup, times: int) -> None:
    """Wait until all of the party have come here ``times`` times, this one among them."""
    if party.size == 1:
        return
    _add(party.gate, 1)
    looks = 0
    while _load(party.gate) < party.size * times:
        looks += 1
        if looks > SPINS:
            _offer()


@compiled
def let_go(party: BarrierGroup) -> None:
    """Nobody is to wait any more: one of the party will not come."""
    _add(party.gate, 1 << 60)
