"""The kernels of MoM-DSVM on a block's edges: linear terms, local solve, penalty, receive.

Owns the arithmetic; `algorithms.mom_dsvm` explains it. `kernels.dual` has the local solver.
"""

from typing import NamedTuple

import numpy as np

from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.dual import DualRows, path_pass, primal, shuffle
from gadget_svm.kernels.gossip import find
from gadget_svm.kernels.vectors import sq_norm

PULL_RATIO, TOLERATED_FACTOR = 2.0, 1.5
"""A node proposes PULL_RATIO times the ratio in `adapt_eta`, if its eta is off by more than TOLERATED_FACTOR."""
FORWARDED_ETA = 0.25
"""A node proposes at least this part of its neighbours' largest eta: one with few rows may still connect others."""


class Ends(NamedTuple):
    """Node j's ends of its edges are ptr[j]:ptr[j+1], by ascending neighbour; the other arrays have an entry per end.

    2 alpha_ji is sent - received. The other end knows it with the opposite sign. Each iteration adds
    eta (v_j - v_i). All alphas add up to zero, even if the two ends used different eta, or changed it.
    """

    ptr: Ints
    target: Ints
    eta: Floats
    sent: Floats  # the sum of eta v_j over all iterations
    received: Floats  # the other end's sum, as last received
    received_v: Floats
    received_eta: Floats
    received_seq: Ints
    received_proposal: Floats  # the other end's eta


@compiled
def linear_terms(
    lo: int, hi: int, alive: Flags, now: int, ends: Ends, proposal: Floats, v: Floats, f: Floats, U: Floats
) -> None:
    """Set U_j = 1 + 2 sum_i eta_ij and f_j = 2 alpha_j - sum_i eta_ij (v_j + v_i), over the neighbours i of node j.

    If messages of a neighbour are missing, its last v is used for each missing exchange. eta_ij is the mean of both
    ends' proposals.
    """
    for j in range(lo, hi):
        if not alive[j]:
            continue
        U[j] = 1.0
        f[j, :] = 0.0
        for e in range(ends.ptr[j], ends.ptr[j + 1]):
            eta = 0.5 * (proposal[j] + ends.received_proposal[e])
            missed = ends.received_eta[e] * (now - ends.received_seq[e])
            ends.eta[e] = eta
            U[j] += 2.0 * eta
            for q in range(f.shape[1]):
                alpha = ends.sent[e, q] - ends.received[e, q] - missed * ends.received_v[e, q]
                f[j, q] += alpha - eta * (v[j, q] + ends.received_v[e, q])


@compiled
def solve(
    lo: int, hi: int, alive: Flags, first: int, v: Floats, f: Floats, U: Floats, dual: Floats, perm: Ints,
    path_limit: Floats, path: Floats, rows: DualRows, passes: int, tol: float, seed: int, t: int,
) -> None:  # fmt: skip
    """Set lambda_j by warm-started dual coordinate ascent, and v_j = (sum lambda y x - f_j) / U_j, per output."""
    for j in range(lo, hi):
        if not alive[j]:
            continue
        begin, end = rows.start[j], rows.start[j + 1]
        for c in range(v.shape[1]):
            target = 1 if v.shape[1] == 1 else c
            before = v[j, c].copy()
            primal(v[j, c], dual[c], rows, j, target, f[j, c], U[j])
            path[c, j] += np.sqrt(sq_norm(v[j, c] - before))
            for done in range(passes):
                for p in range(begin, end):
                    perm[p] = p
                shuffle(perm, begin, end, seed, first + j, t * passes + done)
                worst, path[c, j] = path_pass(
                    v[j, c], dual[c], perm, path_limit[c], path[c, j], rows, begin, end, target, U[j]
                )
                if worst <= tol:
                    break


@compiled
def adapt_eta(lo: int, hi: int, alive: Flags, ends: Ends, v: Floats, f: Floats, U: Floats, proposal: Floats) -> None:
    """Propose 2 eta |B_j| = PULL_RATIO |sum lambda y x - v_j| / |v_j|, which pulls about as strongly as the rows.

    2 alpha_j has to balance that pull where all nodes agree. The pull is small if few rows are support vectors, and
    large if the node's rows are unlike the other nodes' rows. sum lambda y x - v_j is (U_j - 1) v_j + f_j.
    """
    for j in range(lo, hi):
        if not alive[j]:
            continue
        eta, length = 0.0, 2.0 * (ends.ptr[j + 1] - ends.ptr[j]) * np.sqrt(sq_norm(v[j]))
        if length > 0.0:
            eta = PULL_RATIO * np.sqrt(sq_norm((U[j] - 1.0) * v[j] + f[j])) / length
        for e in range(ends.ptr[j], ends.ptr[j + 1]):
            eta = max(eta, FORWARDED_ETA * ends.received_proposal[e])
        if not proposal[j] / TOLERATED_FACTOR <= eta <= proposal[j] * TOLERATED_FACTOR:
            proposal[j] = eta


@compiled
def receive(
    lo: int, hi: int, order: Ints, start: Ints, sender: Ints, seq: Ints, vector: Floats, eta: Floats,
    proposal: Floats, ends: Ends,
) -> None:  # fmt: skip
    """Compute each neighbour's v from the increase of its running sum. Ignore old, repeated or foreign messages."""
    for j in range(lo, hi):
        for place in range(start[j], start[j + 1]):
            m = order[place]
            e = find(ends.target, ends.ptr[j], ends.ptr[j + 1], sender[m])
            if e < 0 or seq[m] <= ends.received_seq[e]:
                continue
            if eta[m] == 0.0:  # between nodes without rows, before any proposal has reached them
                ends.received_seq[e], ends.received_proposal[e] = seq[m], proposal[m]
                continue
            gained = eta[m] * (seq[m] - ends.received_seq[e])
            ends.received_seq[e], ends.received_eta[e], ends.received_proposal[e] = seq[m], eta[m], proposal[m]
            for q in range(vector.shape[1]):
                ends.received_v[e, q] = (vector[m, q] - ends.received[e, q]) / gained
                ends.received[e, q] = vector[m, q]
