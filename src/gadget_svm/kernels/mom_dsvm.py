"""The moves of MoM-DSVM on a block's edges: linear terms, local solve, running sums, penalty, listening.

Owns the arithmetic; `algorithms.mom_dsvm` has what it is for. The local solver is `kernels.dual`'s, made to skip rows
that cannot move.
"""

from typing import NamedTuple

import numpy as np

from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.dual import DualRows, primal, shuffle
from gadget_svm.kernels.gossip import find
from gadget_svm.kernels.rows import side
from gadget_svm.kernels.vectors import add_row, dot_row, sq_norm

UNITS = 10.0
"""eta="auto" starts with 2 eta |B_j|, what U_j adds to the curvature 1, at so many mean squared row norms."""
STRAINS, OFF = 2.0, 1.5
"""It is then set to so many strains, see `strain`, where it is off by more than a factor of OFF."""
CARRIED = 0.25
"""The part of its neighbours' largest wish that a node takes over: with few rows it may yet stand between others."""


class Ends(NamedTuple):
    """Node j's ends of its edges are ptr[j]:ptr[j+1], by ascending neighbour; everything else is per end.

    2 alpha_ji is sent - heard, which the other end knows with the opposite sign: it adds eta (v_j - v_i) in every
    iteration. Whatever eta the two ends took and however it changed, all alphas add up to zero.
    """

    ptr: Ints
    other: Ints
    eta: Floats
    sent: Floats  # the sum of eta v_j over all iterations
    heard: Floats  # the other end's, as last heard
    heard_v: Floats
    heard_eta: Floats
    heard_seq: Ints
    heard_wish: Floats


@compiled
def linear_terms(
    lo: int, hi: int, alive: Flags, now: int, ends: Ends, wish: Floats, v: Floats, f: Floats, U: Floats
) -> None:
    """U_j = 1 + 2 sum_i eta_ij and f_j = 2 alpha_j - sum_i eta_ij (v_j + v_i), over the neighbours i of node j.

    Of a neighbour not heard since, the last v counts for every exchange missed. eta_ij is the mean of what both ends
    wish.
    """
    for j in range(lo, hi):
        if not alive[j]:
            continue
        U[j] = 1.0
        f[j, :] = 0.0
        for e in range(ends.ptr[j], ends.ptr[j + 1]):
            eta = 0.5 * (wish[j] + ends.heard_wish[e])
            missed = ends.heard_eta[e] * (now - ends.heard_seq[e])
            ends.eta[e] = eta
            U[j] += 2.0 * eta
            for q in range(f.shape[1]):
                alpha = ends.sent[e, q] - ends.heard[e, q] - missed * ends.heard_v[e, q]
                f[j, q] += alpha - eta * (v[j, q] + ends.heard_v[e, q])


@compiled
def add_up(lo: int, hi: int, ends: Ends, v: Floats) -> None:
    """What node j will have sent; also of those away: their v stands still, and their neighbours count it so."""
    for j in range(lo, hi):
        for e in range(ends.ptr[j], ends.ptr[j + 1]):
            for q in range(v.shape[1]):
                ends.sent[e, q] += ends.eta[e] * v[j, q]


@compiled
def solve(
    lo: int, hi: int, alive: Flags, first: int, v: Floats, f: Floats, U: Floats, dual: Floats, turn: Ints,
    reach: Floats, gone: Floats, rows: DualRows, passes: int, tol: float, seed: int, t: int,
) -> None:  # fmt: skip
    """lambda_j by warm-started dual coordinate ascent, and v_j = (sum lambda y x - f_j) / U_j, for every output."""
    for j in range(lo, hi):
        if not alive[j]:
            continue
        for c in range(v.shape[1]):
            target = 1 if v.shape[1] == 1 else c
            before = v[j, c].copy()
            primal(v[j, c], dual[c], rows, j, target, f[j, c], U[j])
            gone[c, j] += np.sqrt(sq_norm(v[j, c] - before))
            for done in range(passes):
                shuffle(turn, rows.start[j], rows.start[j + 1], seed, first + j, t * passes + done)
                worst, gone[c, j] = ascend_in_reach(v[j, c], dual[c], turn, reach[c], gone[c, j], rows, j, target, U[j])
                if worst <= tol:
                    break


@compiled
def ascend_in_reach(
    v: Floats, alpha: Floats, turn: Ints, reach: Floats, gone: float, rows: DualRows, j: int, target: int, kappa: float
) -> tuple[float, float]:
    """`kernels.dual.dual_pass` that leaves out rows it need not look at; the largest violation met, and ``gone``.

    ``gone`` is the length of the way v has come. A row whose alpha is at its bound with a margin off 1 by m stays there
    until v has gone m / |x_r| further: ``reach``. With 1 in 50 rows a support vector that is most of them.
    """
    worst = 0.0
    for place in range(rows.start[j], rows.start[j + 1]):
        p = turn[place]
        if gone < reach[p]:
            continue
        r, most, norm2 = rows.order[p], rows.upper[p], rows.norm2[p]
        if norm2 == 0.0:
            alpha[p], reach[p] = most, np.inf  # an empty row's loss is 1 whatever v is
            continue
        first, last = rows.indptr[r], rows.indptr[r + 1]
        y = side(rows.pairs, target, rows.label[r])
        short = 1.0 - y * dot_row(v, rows.indices, rows.data, first, last)
        if (alpha[p] <= 0.0 and short <= 0.0) or (alpha[p] >= most and short >= 0.0):
            reach[p] = gone + abs(short) / np.sqrt(norm2)
            continue
        worst = max(worst, abs(short))
        moved = min(max(alpha[p] + short * kappa / norm2, 0.0), most)
        add_row(v, (moved - alpha[p]) * y / kappa, rows.indices, rows.data, first, last)
        gone += abs(moved - alpha[p]) * np.sqrt(norm2) / kappa
        alpha[p] = moved
    return worst, gone


@compiled
def strain(lo: int, hi: int, alive: Flags, ends: Ends, v: Floats, f: Floats, U: Floats, wish: Floats) -> None:
    """2 eta |B_j| = STRAINS |sum lambda y x - v_j| / |v_j|: the penalty pulls about as hard as the rows of the node do.

    That pull is what 2 alpha_j will have to balance where all agree. It is small where few rows are support vectors,
    and large where the node's rows are unlike the others'. sum lambda y x - v_j is (U_j - 1) v_j + f_j.
    """
    for j in range(lo, hi):
        if not alive[j]:
            continue
        mine, reply = 0.0, 2.0 * (ends.ptr[j + 1] - ends.ptr[j]) * np.sqrt(sq_norm(v[j]))
        if reply > 0.0:
            mine = STRAINS * np.sqrt(sq_norm((U[j] - 1.0) * v[j] + f[j])) / reply
        for e in range(ends.ptr[j], ends.ptr[j + 1]):
            mine = max(mine, CARRIED * ends.heard_wish[e])
        if not wish[j] / OFF <= mine <= wish[j] * OFF:
            wish[j] = mine


@compiled
def listen(
    lo: int, hi: int, order: Ints, start: Ints, sender: Ints, seq: Ints, vector: Floats, eta: Floats, wish: Floats,
    ends: Ends,
) -> None:  # fmt: skip
    """What a neighbour's running sum gained is eta times its v; old, repeated or returned mail is ignored."""
    for j in range(lo, hi):
        for place in range(start[j], start[j + 1]):
            m = order[place]
            e = find(ends.other, ends.ptr[j], ends.ptr[j + 1], sender[m])
            if e < 0 or seq[m] <= ends.heard_seq[e]:
                continue
            if eta[m] == 0.0:  # from one without rows to another, before any wish has reached them
                ends.heard_seq[e], ends.heard_wish[e] = seq[m], wish[m]
                continue
            gained = eta[m] * (seq[m] - ends.heard_seq[e])
            ends.heard_seq[e], ends.heard_eta[e], ends.heard_wish[e] = seq[m], eta[m], wish[m]
            for q in range(vector.shape[1]):
                ends.heard_v[e, q] = (vector[m, q] - ends.heard[e, q]) / gained
                ends.heard[e, q] = vector[m, q]


@compiled
def wishes(lo: int, hi: int, rows: DualRows, times: Floats, degree: Ints, units: float, wish: Floats) -> None:
    """The eta every node would start with, from its own rows and degree: 2 eta |B_j| = units * mean |x_r|^2.

    What it wishes rides in every message, and an edge takes the mean of its two ends: nobody needs to know all rows.
    """
    for j in range(lo, hi):
        length2, count = 0.0, 0.0
        for p in range(rows.start[j], rows.start[j + 1]):
            length2 += times[p] * rows.norm2[p]
            count += times[p]
        wish[j] = units * length2 / (2.0 * max(count, 1e-300) * max(degree[j], 1))
