"""Poisoning: nodes that lie. Their messages are changed on the way, and `flip_labels` changes their rows.

A lying node learns like the others and receives true messages; only what it sends is false. Owns the lies; each has a
parameter that says which nodes lie. Messages of certificates are not changed.
"""

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from gadget_svm.core.messages import Exchange, MessageBatch
from gadget_svm.core.types import Array, Flags, Floats
from gadget_svm.faults.base import Fault, FaultContext, node_mask, probability
from gadget_svm.kernels.counter_rng import LIAR, uniform

Liars = int | Sequence[int] | float
"""The nodes that lie: a node, several, or the fraction of all nodes that a seeded draw selects, such as 0.2."""


@dataclass(frozen=True)
class Poison(Fault):
    """The base class of lies: changes the messages whose sender lies. A subclass writes `lie`.

    Parameters
    ----------
    nodes : int, list of int, or float, default (0,)
        The nodes that lie: a node, several, or a fraction of all nodes such as 0.2, drawn by the seed.
    """

    nodes: Liars = (0,)
    loses = False

    @abstractmethod
    def lie(self, false: MessageBatch, honest: MessageBatch, context: FaultContext) -> MessageBatch:
        """Return the messages that arrive in place of ``false``, the messages of lying nodes.

        ``honest`` are the messages of the other nodes in the same exchange, sorted by sender, receiver and number.
        """

    def wrap(self, exchange: Exchange, context: FaultContext) -> Exchange:
        """Return the exchange with this fault."""
        liars = liar_mask(self.nodes, context)

        def poisoned(messages: MessageBatch) -> Any:
            learning = messages.seq >= 0
            false = liars[messages.sender] & learning
            if not false.any():
                return exchange(messages)
            honest = messages.select(np.flatnonzero(~false & learning))
            honest = honest.select(np.lexsort((honest.seq, honest.receiver, honest.sender)))
            with np.errstate(over="ignore", invalid="ignore"):  # lies that nobody bounds grow
                lies = self.lie(messages.select(np.flatnonzero(false)), honest, context)
            return exchange(MessageBatch.merge([messages.select(np.flatnonzero(~false)), lies]))

        return poisoned


def liar_mask(nodes: Liars, context: FaultContext) -> Flags:
    """Return a mask of the nodes that lie."""
    if not isinstance(nodes, float):
        return node_mask(nodes, context)
    count = round(probability(nodes, "the fraction of nodes that lie") * context.n_nodes)
    ids = np.arange(context.n_nodes)
    order = np.argsort(uniform(context.seed, ids, np.zeros_like(ids), LIAR), kind="stable")
    return np.isin(ids, order[:count])


@dataclass(frozen=True)
class SignFlip(Poison):
    """Lying nodes send their vector with the opposite sign, ``factor`` times as long.

    Parameters
    ----------
    nodes : int, list of int, or float, default (0,)
        The nodes that lie, or their fraction.
    factor : float, default 1.0
        How many times as long the vector is.
    """

    factor: float = 1.0

    def lie(self, false: MessageBatch, honest: MessageBatch, context: FaultContext) -> MessageBatch:  # noqa: ARG002
        """Return the messages with the sign of their vectors changed."""
        return false._replace(vector=-self.factor * false.vector)


@dataclass(frozen=True)
class Constant(Poison):
    """Lying nodes send a vector whose entries are all the same number.

    Parameters
    ----------
    nodes : int, list of int, or float, default (0,)
        The nodes that lie, or their fraction.
    value : float, default 1e6
        The number.
    """

    value: float = 1e6

    def lie(self, false: MessageBatch, honest: MessageBatch, context: FaultContext) -> MessageBatch:  # noqa: ARG002
        """Return the messages with constant vectors."""
        return false._replace(vector=np.full_like(false.vector, self.value))


@dataclass(frozen=True)
class Zeros(Poison):
    """Lying nodes send zeros.

    Parameters
    ----------
    nodes : int, list of int, or float, default (0,)
        The nodes that lie, or their fraction.
    """

    def lie(self, false: MessageBatch, honest: MessageBatch, context: FaultContext) -> MessageBatch:  # noqa: ARG002
        """Return the messages with vectors of zeros."""
        return false._replace(vector=np.zeros_like(false.vector))


@dataclass(frozen=True)
class LittleIsEnough(Poison):
    """Lying nodes all send the mean of the honest vectors, less z standard deviations in each coordinate.

    The attack of Baruch, Baruch and Goldberg (2019), "A Little Is Enough". It hides among the honest vectors: the lying
    nodes know all of them, and move each coordinate no further than some honest nodes are.

    Parameters
    ----------
    nodes : int, list of int, or float, default (0,)
        The nodes that lie, or their fraction.
    z : float or None, default None
        How many standard deviations. None: the authors' choice for this number of nodes and of liars. For few nodes it
        is close to zero, and the attack is weak.
    """

    z: float | None = None

    def lie(self, false: MessageBatch, honest: MessageBatch, context: FaultContext) -> MessageBatch:
        """Return the messages with the shifted mean. If no honest node sends, return them unchanged."""
        if honest.n_messages == 0:
            return false
        first = np.unique(honest.sender, return_index=True)[1]  # every node counts once
        vectors = honest.vector[first]
        z = self._hidden_shift(context) if self.z is None else self.z
        shifted: Floats = vectors.mean(axis=0) - z * vectors.std(axis=0)
        return false._replace(vector=np.tile(shifted, (false.n_messages, 1)))

    def _hidden_shift(self, context: FaultContext) -> float:
        """Return the largest z at which liars and the honest nodes that are further from the mean form a majority.

        It is the quantile (n - m - s) / (n - m) of the normal distribution, s = floor(n/2 + 1) - m, for m liars of n.
        """
        n, liars = context.n_nodes, int(liar_mask(self.nodes, context).sum())
        supporters = n // 2 + 1 - liars
        share = (n - liars - supporters) / max(n - liars, 1)
        return NormalDist().inv_cdf(share) if 0.5 < share < 1 else 0.0


@dataclass(frozen=True)
class FalseCounts(Poison):
    """Lying nodes claim another number of rows: the numbers beside their vectors are multiplied.

    Parameters
    ----------
    nodes : int, list of int, or float, default (0,)
        The nodes that lie, or their fraction.
    factor : float, default 1000.0
        The factor.
    """

    factor: float = 1000.0

    def lie(self, false: MessageBatch, honest: MessageBatch, context: FaultContext) -> MessageBatch:  # noqa: ARG002
        """Return the messages with false weights."""
        return false._replace(weight=self.factor * false.weight)


def flip_labels(y: ArrayLike, sites: ArrayLike, liars: Sequence[Hashable]) -> Array:
    """Return the labels, with false labels at some sites.

    At these sites every class is renamed to the next class, and the last to the first, so two classes are swapped. This
    attacks rows and not messages, so it is not a fault; call it before `fit`.

    Parameters
    ----------
    y : array-like
        The labels of all rows.
    sites : array-like
        The site of every row, as for `fit`.
    liars : sequence
        The sites whose labels are flipped.

    Raises
    ------
    ValueError
        If a liar is not a site.

    Examples
    --------
    >>> flip_labels([0, 1, 0, 1], sites=["a", "a", "b", "b"], liars=["b"]).tolist()
    [0, 1, 1, 0]
    """
    labels, at = np.asarray(y), np.asarray(sites)
    unknown = [liar for liar in liars if not (at == liar).any()]
    if unknown:
        raise ValueError(f"there is no site {unknown[0]!r}: the sites are {', '.join(map(str, np.unique(at)))}")
    classes, number = np.unique(labels, return_inverse=True)
    flipped = classes[(number + 1) % len(classes)]
    return np.where(np.isin(at, np.asarray(liars)), flipped, labels)
