"""The steps of a training session: build a learner, or one tick. A host may run them in a thread.

Owns the order within a tick: change edges, learn alone if the last neighbour is gone, solve, filter what is sent, apply
what arrived, measure. A step gets everything as values, and changes only the learner and the filter.
"""

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import scipy.sparse as sp
from numpy.typing import NDArray

from gadget_svm.core.types import Floats
from gadget_svm.peers.training.learner import Learner, Measures, NodeMessage
from gadget_svm.peers.training.release_filter import ReleaseFilter, RowFilter
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.training.session_state import Saved, without_prefix
from gadget_svm.peers.training.site import Site
from gadget_svm.study.study import Study

REFRESH_TICKS = 64
"""Ticks after which w is computed anew from its parts."""

Sent = tuple[str, int, Floats, float, float | None]
"""Neighbour, sequence number, vector, weight, note."""


class Parts(NamedTuple):
    """What belongs together, on one scale."""

    learner: Learner
    filter: ReleaseFilter
    X_test: sp.csr_matrix | None
    label_test: NDArray[Any] | None
    digest: bytes  # of the scale


class TickInput(NamedTuple):
    """What a tick works on."""

    wanted: Mapping[int, str]  # edges: numbers and names of the neighbours
    changed: bool  # whether the edges may have changed
    restarted: Collection[int]
    open_to: Collection[int]
    arrived: list[NodeMessage]
    near: list[Floats] | None  # models of the neighbours to measure with, or None: no measures


class TickResult(NamedTuple):
    """What a tick gives."""

    parts: Parts
    sent: tuple[Sent, ...]
    edges: frozenset[str] | None  # if they changed
    finite: bool
    measures: Measures | None = None
    accuracy: float | None = None
    blocked: tuple[str, ...] = ()


def scaled_rows(site: Site, scale: Scale) -> tuple[sp.csr_matrix, sp.csr_matrix | None]:
    """Return a site's rows and test rows on the scale."""
    if scale.is_plain:
        return site.X, site.X_test
    return scale.apply(site.X), None if site.X_test is None else scale.apply(site.X_test)


def build(
    study: Study, site: Site, node: int, seed: int, noise_seed: int, scale: Scale, digest: bytes, saved: Saved | None,
    former: Parts | None,
) -> Parts:  # fmt: skip
    """Build a learner, from a snapshot if there is one, and in the place of a former one if there was one."""
    X, X_test = scaled_rows(site, scale)
    learner = Learner(X, site.label, study, node, seed=seed)
    released: ReleaseFilter = RowFilter(learner.X, study.outputs, noise_seed)
    if saved is not None:
        arrays, about = saved
        learner.restore(without_prefix("learner", arrays), about["learner"])
        released.restore(without_prefix("filter", arrays))
    if former is not None:
        learner.succeed(former.learner)
        released = former.filter
    return Parts(learner, released, X_test, site.label_test, digest)


def tick(parts: Parts, given: TickInput) -> TickResult:
    """Do one tick."""
    learner, released, wanted = parts.learner, parts.filter, given.wanted
    for number in given.restarted:
        learner.reset_edge(number)
    if given.changed:
        learner.set_neighbours(wanted.keys())
        released.forget(wanted.keys())
    learner.solve_alone()
    if learner.t % REFRESH_TICKS == REFRESH_TICKS - 1:
        learner.refresh()
    learner.draw_from(given.open_to)
    sent = []
    for message in learner.solve():
        if message.other in given.open_to:
            vector = released.release(message.other, message.vector, learner.duals)
            if vector is not None:
                released.sent(message.other, vector)
                sent.append((wanted[message.other], message.seq, vector, message.weight, message.note))
    learner.absorb(given.arrived)
    edges = frozenset(wanted.values()) if given.changed else None
    result = TickResult(parts, tuple(sent), edges, learner.finite())
    if given.near is None or not result.finite:
        return result
    accuracy, X, label = None, parts.X_test, parts.label_test
    if X is not None and label is not None and len(label):
        accuracy = learner.accuracy(X, label)
    blocked = tuple(sorted(name for number, name in wanted.items() if released.blocked(number)))
    return result._replace(measures=learner.measure(given.near), accuracy=accuracy, blocked=blocked)
