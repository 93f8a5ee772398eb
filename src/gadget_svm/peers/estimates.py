"""Estimates of the whole network from what members say of themselves. Bounds are the business of certificates."""

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from gadget_svm.core.types import Floats
from gadget_svm.peers.membership.member import Member

LARGEST_DISAGREEMENT = 0.25
"""The relative distance of a neighbour's model above which the sums of different models tell nothing of one."""


class Estimates(NamedTuple):
    """Of the whole network, as one node sees it; NaN where it cannot tell."""

    objective: float = math.nan
    gap: float = math.nan  # relative to the objective
    disagreement: float = math.nan
    rows: float = 0.0


def estimate(
    lam: float, norm: float, mine: Member, others: Iterable[Member], model: Floats | None, near: Iterable[Floats]
) -> Estimates:
    """Return the pooled objective and its gap, from every member's own sums.

    If all have one model, the pooled duality gap is the sum of the members' slack. Models differ a little, so each
    member reports the worst of its own and its neighbours' models. There is no gap if a member does not know its
    slack, or if a neighbour's model is far away: the sums then belong to different models.
    """
    if model is None or mine.rows <= 0:
        return Estimates()
    lines = [mine, *(line for line in others if line.rows > 0 and line.objective > 0)]
    rows = sum(line.rows for line in lines)
    objective = 0.5 * lam * norm**2 + sum(line.loss for line in lines) / rows
    flat = model.ravel()
    length = float(np.sqrt(flat @ flat))
    apart = [float(np.sqrt(((other.ravel() - flat) ** 2).sum())) for other in near]
    disagreement = max(apart) / length if apart and length > 0 else math.nan
    gap = math.nan
    if all(line.slack >= 0 for line in lines) and objective > 0 and not disagreement > LARGEST_DISAGREEMENT:
        gap = sum(line.slack for line in lines) / rows / objective
    return Estimates(objective, gap, disagreement, rows)
