"""Prefetching of the rows that messages name.

They lie anywhere in memory, and waiting for them would take most of a round.

Owns the hint to the processor; it changes no value and no order.
"""

from typing import Any

from gadget_svm.core.types import Floats
from gadget_svm.kernels.compiler import DISABLED, LowLevel, allocation_free

DOUBLES_PER_LINE = 8
"""Doubles in a cache line."""
MAX_DOUBLES = 256
"""Doubles of a row to prefetch; of a longer row the processor guesses the rest."""
PREFETCH_ROWS = 16
"""Rows between the prefetch of a row and its use. All three were tuned on rows of 1 to 47,236 doubles."""


def _no_prefetch(array: Any, index: tuple[int, ...]) -> None:
    """Without a compiler, do nothing."""


def _compiled_prefetch(level: int) -> Any:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def prefetch(_context: Any, array: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = signature.args[0]
            view = context.make_array(kind)(context, builder, arguments[0])
            place = cgutils.get_item_pointer(context, builder, kind, view, cgutils.unpack_tuple(builder, arguments[1]))
            pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            call = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
            function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], call)
            read, near, data = (ir.Constant(number, value) for value in (0, 4 - level, 1))
            builder.call(function, [builder.bitcast(place, pointer), read, near, data])
            return context.get_dummy_value()

        place = types.UniTuple(types.intp, len(index))  # type: ignore[attr-defined]
        return types.void(array, place), codegen

    return prefetch


prefetch: Any = _no_prefetch if DISABLED else LowLevel(lambda: _compiled_prefetch(2))
"""Into the second-level cache: for rows that are used much later."""
prefetch_soon: Any = _no_prefetch if DISABLED else LowLevel(lambda: _compiled_prefetch(1))
"""Into the first-level cache: for rows that are used next."""


@allocation_free
def prefetch_row(array: Floats, i: int) -> None:
    """Prefetch the beginning of row i."""
    width = min(array.shape[1], MAX_DOUBLES)
    for j in range(0, width, DOUBLES_PER_LINE):
        prefetch(array, (i, j))
    prefetch(array, (i, width - 1))  # a row need not begin where a line does


@allocation_free
def prefetch_entry(array: Floats, i: int) -> None:
    """Prefetch entry i."""
    prefetch(array, (i,))
