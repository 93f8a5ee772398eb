"""Computations on rows: a hash of their content, and the losses of many models in one pass.

numpy and scipy are as fast as compiled kernels here. Sums are taken row by row, in order.
"""

from itertools import pairwise

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Array, Floats, Indices, Words
from gadget_svm.kernels.compiler import allocation_free
from gadget_svm.kernels.counter_rng import GOLDEN, mix_all

NO_PAIRS = np.empty((0, 2), dtype=np.int32)
"""The pairs of classes if outputs are not one against one: empty, see `side`."""
_ONE = np.uint64(1)
HASH_ENTRIES = 1 << 16
"""How many entries are hashed at a time, so that memory stays bounded."""


def hash_rows(indptr: Array, indices: Array, bits: Words, label: Indices, seed: int) -> Words:
    """Return a seeded hash of each row's label and non-zero entries, which does not depend on their order."""
    sums = np.zeros(len(label), dtype=np.uint64)
    cuts = np.searchsorted(indptr, np.arange(0, indptr[-1], HASH_ENTRIES))
    for first, last in pairwise(np.unique([0, *cuts, len(label)])):
        here = slice(indptr[first], indptr[last])
        mixed = indices[here].astype(np.uint64)
        mixed += _ONE
        mixed *= GOLDEN
        mixed += bits[here]
        mix_all(mixed)
        if not bits[here].view(np.float64).all():
            mixed[bits[here] << _ONE == 0] = 0  # 0.0 and -0.0
        filled = first + np.flatnonzero(indptr[first:last] < indptr[first + 1 : last + 1])
        if len(filled):
            sums[filled] = np.add.reduceat(mixed, indptr[filled] - indptr[first])  # numbers wrap around: exact
    start = mix_all(np.array([seed]).astype(np.uint64) + GOLDEN)
    return mix_all(mix_all(start ^ sums) + GOLDEN * (label.astype(np.uint64) + _ONE))


def losses(
    lo: int, hi: int, chunk: int, X: sp.csr_matrix, label: Indices, weight: Floats, times: Floats,
    pairs: Indices, W: Floats, n_outputs: int, hinge: Floats, wrong: Floats,
) -> None:  # fmt: skip
    """Sum the hinge of every model and output, and the weight of its wrong answers, in the chunks lo:hi of rows.

    ``W`` is features x (models * outputs), so that one feature's weights in all models lie side by side.
    Chunks have a fixed size, and the caller sums them in order: threads do not change the sum.
    """
    for part in range(lo, hi):
        here = slice(part * chunk, min((part + 1) * chunk, len(label)))
        with np.errstate(over="ignore", invalid="ignore"):  # models that diverged overflow
            score = (stretch(X, here.start, here.stop) @ W).reshape(-1, W.shape[1] // n_outputs, n_outputs)
            y = sides(pairs, n_outputs, label[here])[:, None]
            short = np.maximum(0.0, np.abs(y) - y * score)
            hinge[part] = (weight[here, None, None] * short).sum(axis=0).ravel()
            missed = answers(score, pairs) != label[here, None]
        wrong[part] = (times[here, None] * missed).sum(axis=0)


def stretch(X: sp.csr_matrix, first: int, last: int) -> sp.csr_matrix:
    """Return the rows first:last without a copy."""
    here = slice(X.indptr[first], X.indptr[last])
    indptr = X.indptr[first : last + 1] - X.indptr[first]
    return sp.csr_matrix((X.data[here], X.indices[here], indptr), shape=(last - first, X.shape[1]))


def sides(pairs: Indices, n_outputs: int, label: Indices) -> Floats:
    """Return `side` of every row for every output, rows x outputs."""
    if len(pairs) == 0:
        return np.where(label[:, None] == (np.arange(n_outputs) if n_outputs > 1 else 1), 1.0, -1.0)
    first, second = (np.asarray(label[:, None] == pairs[:, side], dtype=np.float64) for side in (0, 1))
    return first - second


def answers(score: Floats, pairs: Indices) -> Array:
    """Return the class that each model predicts for each row: by the sign of one score, the largest score, or a vote.

    One against one, it is the class with most votes, ties broken by scores, as scikit-learn's
    `_ovr_decision_function` does.
    """
    if len(pairs) == 0:
        return score[..., 0] > 0.0 if score.shape[-1] == 1 else score.argmax(axis=-1)
    votes, sums = np.zeros((2, *score.shape[:2], pairs[-1, 0] + 1))
    for c, (a, b) in enumerate(pairs):
        value, won = score[..., c], score[..., c] > 0.0
        votes[..., a] += won
        votes[..., b] += ~won
        sums[..., a] += value
        sums[..., b] -= value
    return np.asarray((votes + sums / (3.0 * (np.abs(sums) + 1.0))).argmax(axis=-1))


@allocation_free
def side(pairs: Indices, target: int, label: int) -> float:
    """Return y of a row with this label for an output: +1, -1, or 0 if the output does not see the row.

    One against the rest (``pairs`` is empty): ``target`` is the output's class. One against one: output ``target``
    separates class pairs[target, 0], +1, from class pairs[target, 1], -1.
    """
    if len(pairs) == 0:
        return 1.0 if label == target else -1.0
    if label == pairs[target, 0]:
        return 1.0
    return -1.0 if label == pairs[target, 1] else 0.0
