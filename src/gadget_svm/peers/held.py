"""Edges to those who have left, held still while PDMM goes on around them. Owns what it takes for that, edge by edge.

PDMM spreads the pull of an edge that is closed over all that are open; a held one would take a part of it for good. And
a last letter brings to its edge what the leaver's other edges pulled, which their other ends now spread in turn. In
both cases the edges in use bear the difference, as any z of theirs is as good as another, and w stays where it is. If
there are none in use, w moves: to where it would be without what was spread, or with what the letter says. Others'
letters are not for the same tick: they may hold the difference already.

In terms of `kernels.pdmm`: an edge pulls with A z + rho w, and (n lam + R) w + sum_j A_j z_j does not change.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from gadget_svm.core.block import Block

Floats = NDArray[np.float64]

NO_MORE = 1 << 30
"""As many changes of a penalty as leave it alone: one beside a last letter would pull to where w was then."""


@contextmanager
def held(block: Block, kept: frozenset[int], speaking: frozenset[int] = frozenset()) -> Iterator[None]:
    """Whatever is done to the block meanwhile, its edges to ``kept`` stay, but for last letters of ``speaking``."""
    ends = _open_ends(block, kept)
    if not ends:
        yield
        return
    before = {j: (block.edge["z"][e].copy(), block.edge["rho"][e], block.edge["n_changes"][e]) for j, e in ends.items()}
    for e in ends.values():
        block.edge["n_changes"][e] = NO_MORE
    yield
    edge, ends = block.edge, _open_ends(block, kept.intersection(before))
    back, come, stiffer = np.zeros(block.s.shape[1]), np.zeros(block.s.shape[1]), 0.0
    for j, e in ends.items():
        z, rho, edge["n_changes"][e] = before[j]
        moved = _sign(block, j) * (edge["z"][e] - z)
        if j in speaking:
            come += moved
            stiffer += edge["rho"][e] - rho
        else:
            back += moved
            edge["z"][e] = z
    if not (back.any() or come.any() or stiffer):
        return
    kappa, w = edge["n_lam"][0] + edge["R"][0], block.flat[0]
    others = {j: e for j, e in _open_ends(block).items() if j not in ends}
    if not others:
        w += back / kappa
        return
    still = (kappa * w + come) / (kappa - stiffer)
    for j, e in others.items():
        edge["z"][e] += _sign(block, j) * (back - kappa * (still - w)) / len(others)
    w[:] = still


def spare_turns(block: Block, kept: frozenset[int], turn: int) -> None:
    """The next letter goes to one who is here: a turn of one who is not would be lost, and there may be many."""
    here = [e for j, e in _open_ends(block).items() if j not in kept] if kept else []
    if here:
        block.edge["reply_due"][here[turn % len(here)]] = True


def pulled(block: Block) -> Floats:
    """sum A z over the open edges."""
    parts = [_sign(block, j) * block.edge["z"][e] for j, e in _open_ends(block).items()]
    return np.sum(parts, axis=0) if parts else np.zeros(block.s.shape[1])


def _open_ends(block: Block, some: frozenset[int] | None = None) -> dict[int, int]:
    """Where the open edges to these are, or all of them."""
    is_open = block.edge.get("open")
    if is_open is None or (some is not None and not some):
        return {}
    found = {int(j): e for e, j in enumerate(block.links.target) if is_open[e]}
    return found if some is None else {j: e for j, e in found.items() if j in some}


def _sign(block: Block, other: int) -> float:
    return 1.0 if block.first < other else -1.0
