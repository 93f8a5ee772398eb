"""Kernels over the data's rows: a hash of their content, and the losses of many models in one pass."""

import numpy as np
from numpy.typing import NDArray

from gadget_svm.kernels.compiler import compiled
from gadget_svm.kernels.draws import mix_bits

Floats = NDArray[np.float64]
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@compiled
def hash_rows(
    indptr: NDArray[np.int32], indices: NDArray[np.int32], bits: NDArray[np.uint64], label: NDArray[np.int32], seed: int
) -> NDArray[np.uint64]:
    """A seeded hash of what each row says (its label and non-zero entries), whatever order they are stored in."""
    out = np.empty(len(label), dtype=np.uint64)
    start = mix_bits(np.uint64(seed) + _GOLDEN)
    for r in range(len(label)):
        total = np.uint64(0)
        for p in range(indptr[r], indptr[r + 1]):
            if bits[p] << np.uint64(1) != np.uint64(0):  # neither 0.0 nor -0.0
                total += mix_bits(bits[p] + _GOLDEN * np.uint64(indices[p] + 1))
        out[r] = mix_bits(mix_bits(start ^ total) + _GOLDEN * np.uint64(label[r] + 1))
    return out


@compiled
def append_constant(
    indptr: NDArray[np.int32], indices: NDArray[np.int32], data: Floats, column: int, to: NDArray[np.int32],
    new_indices: NDArray[np.int32], new_data: Floats,
) -> None:  # fmt: skip
    """Row r to the places to[r]:to[r+1], which are one more than it has, with a 1 in ``column`` at the end."""
    for r in range(len(to) - 1):
        shift = to[r] - indptr[r]
        for p in range(indptr[r], indptr[r + 1]):
            new_indices[p + shift], new_data[p + shift] = indices[p], data[p]
        new_indices[to[r + 1] - 1], new_data[to[r + 1] - 1] = column, 1.0


@compiled
def losses(
    lo: int, hi: int, chunk: int, indptr: NDArray[np.int32], indices: NDArray[np.int32], data: Floats,
    label: NDArray[np.int32], weight: Floats, times: Floats, pairs: NDArray[np.int32], W: Floats, n_outputs: int,
    hinge: Floats, wrong: Floats,
) -> None:  # fmt: skip
    """Chunks lo:hi of rows: summed hinge of every model and output, and weight of its wrong answers.

    ``W`` is features x (models * outputs), so that one feature's weights in all models lie side by side.
    Chunks have a fixed size and are summed in a fixed order by the caller: threads do not change the sum.
    """
    width = W.shape[1]
    score, votes = np.empty(width), np.empty((2, pairs[-1, 0] + 1 if len(pairs) else 0))
    for part in range(lo, hi):
        for r in range(part * chunk, min((part + 1) * chunk, len(label))):
            score[:] = 0.0
            for p in range(indptr[r], indptr[r + 1]):
                for m in range(width):
                    score[m] += data[p] * W[indices[p], m]
            for m in range(width):
                target = 1 if n_outputs == 1 else m % n_outputs
                y = side(pairs, target, label[r])
                hinge[part, m] += weight[r] * max(0.0, abs(y) - y * score[m])
            for model in range(width // n_outputs):
                first = model * n_outputs
                best = most_voted(score, first, pairs, votes) if len(pairs) > 0 else answer(score, first, n_outputs)
                if best != label[r]:
                    wrong[part, model] += times[r]


@compiled
def side(pairs: NDArray[np.int32], target: int, label: int) -> float:
    """y of a row of this label for an output: +1, -1, or 0 where the output does not see the row.

    One against the rest (``pairs`` is empty): ``target`` is the output's class. One against one: output ``target``
    tells class pairs[target, 0], +1, from class pairs[target, 1], -1.
    """
    if len(pairs) == 0:
        return 1.0 if label == target else -1.0
    if label == pairs[target, 0]:
        return 1.0
    return -1.0 if label == pairs[target, 1] else 0.0


@compiled
def most_voted(score: Floats, first: int, pairs: NDArray[np.int32], votes: Floats) -> int:
    """The class with most votes of its pairs, ties broken by their scores: scikit-learn's `_ovr_decision_function`."""
    votes[:] = 0.0
    for c in range(len(pairs)):
        value, a, b = score[first + c], pairs[c, 0], pairs[c, 1]
        votes[0, a if value > 0.0 else b] += 1.0
        votes[1, a] += value
        votes[1, b] -= value
    best, most = 0, -np.inf
    for k in range(votes.shape[1]):
        total = votes[0, k] + votes[1, k] / (3.0 * (abs(votes[1, k]) + 1.0))
        if total > most:
            best, most = k, total
    return best


@compiled
def answer(score: Floats, first: int, n_outputs: int) -> int:
    """The class a model answers: the sign of one score, or the largest of several."""
    if n_outputs == 1:
        return 1 if score[first] > 0.0 else 0
    best = 0
    for c in range(1, n_outputs):
        if score[first + c] > score[first + best]:
            best = c
    return best
