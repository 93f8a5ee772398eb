"""Row primitives: a dense weight vector against one sparse row, norms, scalings and prefetching.

A prefetch is a hint to the processor, and changes no value and no order. The rows of the nodes that messages name lie
anywhere in memory, and without prefetching, waiting for them would take most of a round.
"""

from typing import Any

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Floats, Indices
from gadget_svm.kernels.compiler import DISABLED, LowLevel, allocation_free

LANES = 8
"""How many running sums a dot product of contiguous numbers has. A processor adds to all of them in one or a few
instructions."""
ONE, TWO, THREE, FOUR = (np.uint64(number) for number in range(1, 5))
"""Unsigned numbers: compiled code then does not check for negative indices."""


@allocation_free
def dot_row(w: Floats, indices: Indices, data: Floats, lo: int, hi: int) -> float:
    """Return <w, x> for the sparse row stored in lo:hi."""
    total = 0.0
    for p in range(lo, hi):
        total += w[indices[p]] * data[p]
    return total


@allocation_free
def dot_sorted_row(w: Floats, indices: Indices, data: Floats, lo: int, hi: int) -> float:
    """Do as `dot_row` for a row with ascending, distinct features. It is faster, most of all if no feature is missing.

    It keeps several running sums in a fixed order: the processor adds to them in parallel, and the bits are the same
    every time.
    """
    if hi > lo and indices[hi - 1] - indices[lo] == hi - lo - 1:
        return dot_run(w, data, int(indices[lo]), lo, hi - lo)
    a = b = c = d = 0.0
    p, end = np.uint64(lo), np.uint64(hi)
    while p + FOUR <= end:
        a += w[indices[p]] * data[p]
        b += w[indices[p + ONE]] * data[p + ONE]
        c += w[indices[p + TWO]] * data[p + TWO]
        d += w[indices[p + THREE]] * data[p + THREE]
        p += FOUR
    while p < end:
        a += w[indices[p]] * data[p]
        p += ONE
    return (a + b) + (c + d)


def _sum_in_lanes(w: Floats, data: Floats, first: int, lo: int, count: int) -> float:
    """Sum w[first + j] * data[lo + j] over j < count, a multiple of LANES, in LANES running sums."""
    a, b, c, d, e, f, g, h = (w[first : first + count] * data[lo : lo + count]).reshape(-1, LANES).sum(axis=0)
    return float(((a + b) + (c + d)) + ((e + f) + (g + h)))


def _compiled_sum_in_lanes() -> Any:
    """Return `_sum_in_lanes` on a vector of LANES doubles: numba by itself keeps each sum in a register of its own."""
    from llvmlite import ir  # type: ignore[import-untyped]
    from numba.core import types
    from numba.extending import intrinsic

    @intrinsic  # type: ignore[untyped-decorator]
    def total(_context: Any, w: Any, data: Any, _first: Any, _lo: Any, _count: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            number, lanes = ir.IntType(64), ir.VectorType(ir.DoubleType(), LANES)
            views = [context.make_array(signature.args[k])(context, builder, arguments[k]) for k in (0, 1)]
            starts = [builder.gep(view.data, [at]) for view, at in zip(views, arguments[2:4], strict=True)]
            before = builder.block
            loop, after = builder.append_basic_block("lanes"), builder.append_basic_block("sum")
            some = builder.icmp_signed(">", arguments[4], number(0))
            builder.cbranch(some, loop, after)
            builder.position_at_end(loop)
            j, sums = builder.phi(number), builder.phi(lanes)
            parts = [builder.bitcast(builder.gep(start, [j]), lanes.as_pointer()) for start in starts]
            added = builder.fadd(sums, builder.fmul(*(builder.load(part, align=8) for part in parts)))
            following = builder.add(j, number(LANES))
            for phi, begin, later in ((j, number(0), following), (sums, lanes([0.0] * LANES), added)):
                phi.add_incoming(begin, before)
                phi.add_incoming(later, loop)
            builder.cbranch(builder.icmp_signed("<", following, arguments[4]), loop, after)
            builder.position_at_end(after)
            whole = builder.phi(lanes)
            whole.add_incoming(lanes([0.0] * LANES), before)
            whole.add_incoming(added, loop)
            left = [builder.extract_element(whole, ir.IntType(32)(lane)) for lane in range(LANES)]
            while len(left) > 1:
                left = [builder.fadd(*left[pair : pair + 2]) for pair in range(0, len(left), 2)]
            return left[0]

        return types.float64(w, data, types.int64, types.int64, types.int64), codegen

    return total


sum_in_lanes: Any = _sum_in_lanes if DISABLED else LowLevel(_compiled_sum_in_lanes)


@allocation_free
def dot_run(w: Floats, data: Floats, first: int, lo: int, count: int) -> float:
    """Return the dot product of w[first:first+count] and data[lo:lo+count]."""
    whole = count - count % LANES
    total: float = sum_in_lanes(w, data, first, lo, whole)
    for j in range(whole, count):
        total += w[first + j] * data[lo + j]
    return total


@allocation_free
def add_sorted_row(w: Floats, factor: float, indices: Indices, data: Floats, lo: int, hi: int) -> None:
    """Do as `add_row` for a row with ascending, distinct features; the bits are the same."""
    if hi > lo and indices[hi - 1] - indices[lo] == hi - lo - 1:
        first = np.uint64(indices[lo])
        for j in range(np.uint64(hi - lo)):
            w[first + j] += factor * data[np.uint64(lo) + j]
    else:
        add_row(w, factor, indices, data, lo, hi)


@allocation_free
def add_row(w: Floats, factor: float, indices: Indices, data: Floats, lo: int, hi: int) -> None:
    """w += factor * x for the sparse row stored in lo:hi."""
    p, end = np.uint64(lo), np.uint64(hi)
    while p < end:
        w[indices[p]] += factor * data[p]
        p += ONE


@allocation_free
def prefetch_sparse_row(indices: Indices, data: Floats, lo: int, hi: int) -> None:
    """Prefetch the sparse row stored in lo:hi."""
    for p in range(lo, hi, DOUBLES_PER_LINE):
        prefetch_soon(data, (p,))
    for p in range(lo, hi, 2 * DOUBLES_PER_LINE):
        prefetch_soon(indices, (p,))


@allocation_free
def sq_norm_row(data: Floats, lo: int, hi: int) -> float:
    """Return |x|^2 of the sparse row stored in lo:hi."""
    total = 0.0
    for p in range(lo, hi):
        total += data[p] * data[p]
    return total


@allocation_free
def scale(w: Floats, factor: float) -> None:
    """w *= factor."""
    for j in range(len(w)):
        w[j] *= factor


def weighted_sum(factors: Floats, vectors: Floats) -> Floats:
    """Return the sum of factors[i] * vectors[i], added in order: the same bits every time, unlike BLAS."""
    row = sp.csr_matrix((factors, np.arange(len(factors)), [0, len(factors)]), shape=(1, len(factors)))
    total: Floats = np.asarray(row @ vectors)[0]
    return total


@allocation_free
def sq_norm(w: Floats) -> float:
    """Return |w|^2, by several running sums in a fixed order. This is fast, and gives the same bits every time."""
    return dot_run(w, w, 0, 0, len(w))


DOUBLES_PER_LINE = 8
"""Doubles in a cache line."""
MAX_DOUBLES = 256
"""How many doubles of a row are prefetched. The processor itself prefetches the rest of a longer row."""
PREFETCH_ROWS = 16
"""How many rows before its use a row is prefetched. All three numbers were tuned on rows of 1 to 47,236 doubles."""


def _no_prefetch(array: Any, index: tuple[int, ...]) -> None:
    """Without a compiler, do nothing."""


def _compiled_prefetch(level: int) -> Any:
    from llvmlite import ir
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
"""Prefetches into the second-level cache, for rows that are used much later."""
prefetch_soon: Any = _no_prefetch if DISABLED else LowLevel(lambda: _compiled_prefetch(1))
"""Prefetches into the first-level cache, for rows that are used next."""


@allocation_free
def prefetch_row(array: Floats, i: int) -> None:
    """Prefetch the beginning of row i."""
    width = min(array.shape[1], MAX_DOUBLES)
    for j in range(0, width, DOUBLES_PER_LINE):
        prefetch(array, (i, j))
    prefetch(array, (i, width - 1))  # a row need not begin where a line does


def distances(models: Floats, others: Floats) -> Floats:
    """Return the distance of each model to its counterpart in ``others``, or to ``others`` if that is one model.

    It works in chunks, to bound the memory.
    """
    out = np.empty(len(models))
    stride = max(1, 2**20 // max(1, models[0].size))
    for i in range(0, len(models), stride):
        apart = models[i : i + stride] - (others[i : i + stride] if others.ndim == models.ndim else others)
        out[i : i + stride] = np.sqrt(np.einsum("mkd,mkd->m", apart, apart))
    return out
