"""Asking memory for a row before it is needed: rows that mail names lie anywhere, and waiting for each would be most
of a round. Owns the hint to the processor; it changes no value and no order."""

from typing import Any

from gadget_svm.core.types import Floats
from gadget_svm.kernels.compiler import DISABLED, LowLevel, compiled

LINE = 8
"""Doubles in a line of cache."""
MOST = 256
"""Doubles of a row to ask for; of a longer row the processor guesses the rest by itself."""
AHEAD = 16
"""Rows between asking and taking. All three figures were tried on rows of 1 to 47,236 doubles."""


def _hint(array: Any, index: tuple[int, ...]) -> None:
    """Without a compiler there is nobody to tell."""


def _compiled_hint() -> Any:
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba.core import cgutils, types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def hint(_context: Any, array: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = signature.args[0]
            view = context.make_array(kind)(context, builder, arguments[0])
            place = cgutils.get_item_pointer(context, builder, kind, view, cgutils.unpack_tuple(builder, arguments[1]))
            pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            call = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
            function = builder.module.declare_intrinsic("llvm.prefetch", [pointer], call)
            read, near, data = (ir.Constant(number, value) for value in (0, 2, 1))  # 2: the second cache
            builder.call(function, [builder.bitcast(place, pointer), read, near, data])
            return context.get_dummy_value()

        place = types.UniTuple(types.intp, len(index))  # type: ignore[attr-defined]
        return types.void(array, place), codegen

    return hint


hint: Any = _hint if DISABLED else LowLevel(_compiled_hint)


@compiled
def ask_for_row(array: Floats, i: int) -> None:
    """Have the beginning of row i brought near."""
    width = min(array.shape[1], MOST)
    for j in range(0, width, LINE):
        hint(array, (i, j))
    hint(array, (i, width - 1))  # a row need not begin where a line does


@compiled
def ask_for(array: Floats, i: int) -> None:
    """Have entry i brought near."""
    hint(array, (i,))
