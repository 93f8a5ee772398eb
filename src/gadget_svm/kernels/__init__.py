"""The lowest layer: arrays in, arrays out. Nothing else imports numba.

Kernels that change state take a range of nodes ``lo, hi`` and touch only those nodes' rows, so any split over threads
or blocks gives the same bits: no fastmath, no BLAS, no reduction across nodes.
"""

from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.counter_rng import EXAMPLE, draw
from gadget_svm.kernels.rows import side
from gadget_svm.kernels.threads import ThreadTeam
from gadget_svm.kernels.vectors import add_row, dot_row, scale, sq_norm, sq_norm_row

__all__ = ["EXAMPLE", "ThreadTeam", "add_row", "compiled", "dot_row", "draw", "scale", "side", "sq_norm", "sq_norm_row"]
