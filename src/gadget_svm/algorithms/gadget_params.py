"""The parameters of GADGET, which `bind` checks and resolves for a network."""

from dataclasses import dataclass

import numpy as np

from gadget_svm import gossip, spectral
from gadget_svm.algorithms.base import BaseAlgorithm, checked_count
from gadget_svm.algorithms.gadget import UNLIMITED, GadgetRun
from gadget_svm.core.lookup import lookup
from gadget_svm.core.network import Network
from gadget_svm.core.types import Floats
from gadget_svm.gossip import Gossip

SOLVERS = {"pegasos": False, "implicit": True}
"""The local steps, and whether the step (e) is bounded."""
MASS = {"auto": None, "persistent": True, "restarted": False}
"""The values of ``mass``, and whether Push-Sum's mass persists from one iteration to the next."""
SPARSE_DEGREE = 6
"""Up to this mean degree, a message to every neighbour is cheap."""
PROJECTIONS = {"both": (True, True), "local": (True, False), "mixed": (False, True), "none": (False, False)}


@dataclass(repr=False, eq=False)
class Gadget(BaseAlgorithm):
    """GADGET SVM, the paper's Algorithm 2.

    Parameters
    ----------
    solver : "pegasos" or "implicit"
        The local step, (a)-(f). "pegasos": as printed. "implicit" (Kulis and Bartlett 2010): the step ends where y<w,x>
        = 1. With a small lam the printed step moves the first iterates across the whole ball.
    gossip : str or Gossip, default "auto"
        How the vectors are averaged (g): "push-sum", "diffusion", "pairwise", "running-sum", or a protocol of your own
        (`gadget_svm.gossip.Gossip`). "auto" is Push-Sum in its randomised form, one neighbour per round. If the run has
        faults that lose messages, it is running sums. On sparse graphs where the randomised form starves some nodes
        (the leaves of a star or a tree send in every round and rarely receive) it is diffusion.
    gossip_rounds : int, "mix" or "diameter"
        Rounds of gossip in an iteration. "mix": as many as bring the error of Push-Sum down to ``gamma``, computed from
        B. "diameter", in the diffusion form: until no estimate moves by more than ``gamma`` in as many rounds as the
        diameter.
    mass : "auto", "persistent" or "restarted", default "auto"
        The two readings of Algorithm 2. "restarted" is the one that is printed: in each iteration Push-Sum starts from
        s = n w, phi = n. It needs many rounds; `gadget_as_printed` has them. "persistent" is ours: s and phi continue
        from the iteration before, the local step is added to s, and a node with little mass delays a part of its step.
        It weighs nodes by n_i exactly, although it has only one round per iteration. "auto" is "persistent" for a fixed
        number of rounds, and "restarted" for "mix" and "diameter".
    gamma : float
        The relative error that Push-Sum must reach.
    transition : "lazy", "random-walk", "metropolis", "max-degree"
        The matrix B on the graph, unless ``topology`` is itself such a matrix.
    batch_size, local_steps : int
        The number of examples in a step, and the number of steps between exchanges.
    project : bool, "local" or "mixed"
        Which of the optional projections into the ball are done. True: (f) and (h). "local": only (f). "mixed": only
        (h). False: neither.
    average : bool
        True: a model is the average of the iterates, as in the theorem. False: it is the last iterate.
    window : int or None
        A node learns from about this many of its latest examples. This is for rows that change over time (concept
        drift) and for `partial_fit`. The step size 1/(lam t) stops falling at t = window / batch_size, and the average
        of the iterates becomes an exponential moving average of that length. A few thousand examples, or a few passes
        over the rows of a node, are a good start: a short window follows changes faster, a long one is more accurate
        between changes. None, as in the paper: all examples count.
    robust : "clip", "trim" or None, default None
        Robust mixing, for networks in which some nodes lie: vectors are averaged so that the influence of neighbours is
        bounded, see `gadget_svm.gossip.RobustMixing`. It takes the place of ``gossip`` and does not use ``transition``.
    liars : int, default 1
        With ``robust``: how many neighbours of a node may lie. Every node needs more than twice this number of
        neighbours.

    Examples
    --------
    >>> from gadget_svm import Gadget, GadgetSVC
    >>> model = GadgetSVC(3, algorithm=Gadget(solver="implicit", local_steps=5), random_state=0)
    >>> model.fit([[-1.0], [1.0]] * 6, [0, 1] * 6).predict([[-2.0], [2.0]]).tolist()
    [0, 1]
    """

    solver: str = "pegasos"
    gossip: str | Gossip = "auto"
    gossip_rounds: int | str = 1
    mass: str = "auto"
    gamma: float = 0.01
    transition: str = "lazy"
    batch_size: int = 1
    local_steps: int = 1
    project: bool | str = True
    average: bool = True
    window: int | None = None
    robust: str | None = None
    liars: int = 1

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None  # noqa: ARG002
    ) -> GadgetRun:  # fmt: skip
        """Return the algorithm on this network, with every parameter checked."""
        implicit = lookup("solver", self.solver, SOLVERS)
        protocol = self._protocol(network, lossy)
        rounds, until = self._rounds(network, protocol)
        mass = lookup("mass", self.mass, MASS)
        persist = not isinstance(self.gossip_rounds, str) if mass is None else mass
        if not (persist or protocol.restartable):
            raise ValueError(
                f"gossip={protocol.name!r} keeps its mass from one iteration to the next and cannot restart. "
                "Use a fixed gossip_rounds with mass='persistent', or gossip='push-sum'"
            )
        protocol.check(network)
        name = {True: "both", False: "none"}.get(self.project) if isinstance(self.project, bool) else self.project
        projections = lookup("projection", str(name), PROJECTIONS)
        inner, outer = (radius if project else np.inf for project in projections)
        batch, steps = checked_count(self.batch_size, "batch_size"), checked_count(self.local_steps, "local_steps")
        window = UNLIMITED if self.window is None else max(1, checked_count(self.window, "window") // batch)
        return GadgetRun(
            lam, inner, outer, protocol, rounds, persist, batch, steps, implicit, self.average, until, window
        )

    def iterations_per_pass(self, rows: int) -> int:
        """Return how many iterations draw as many examples as there are rows."""
        return max(1, -(-rows // (self.batch_size * self.local_steps)))

    def _protocol(self, network: Network, lossy: bool) -> Gossip:
        if self.robust is not None:
            if self.gossip != "auto":
                raise ValueError(f"robust={self.robust!r} takes the place of gossip={self.gossip!r}: leave one out")
            return gossip.RobustMixing(self.robust, self.liars)
        if self.gossip != "auto":
            return gossip.resolve(self.gossip)
        starved = not network.balanced and network.n_edges <= SPARSE_DEGREE * network.n
        return gossip.resolve("running-sum" if lossy else "diffusion" if starved else "push-sum")

    def _rounds(self, network: Network, protocol: Gossip) -> tuple[int, tuple[int, float] | None]:
        """Return the number of rounds, and the arguments of `until_converged` if that function decides when to stop."""
        if not isinstance(self.gossip_rounds, str):
            return checked_count(self.gossip_rounds, "gossip_rounds"), None
        if self.gossip_rounds not in ("mix", "diameter"):
            raise ValueError(
                f"gossip_rounds must be a whole number of at least 1, 'mix' or 'diameter', got {self.gossip_rounds!r}"
            )
        if not 0 < self.gamma < 1:
            raise ValueError(f"gamma is a relative error between 0 and 1, got {self.gamma}")
        if self.gossip_rounds == "mix":
            return max(1, protocol.rounds_to_mix(network, self.gamma)), None
        if not protocol.floods_flag:
            raise ValueError(
                "gossip_rounds='diameter' floods a flag to every neighbour, so it needs gossip='diffusion'; "
                "with another protocol use a number or 'mix'"
            )
        diameter = spectral.diameter_bound(network)
        return 1000 * max(1, diameter), (diameter, self.gamma)


def gadget_as_printed() -> Gadget:
    """Return GADGET as Algorithm 2 is printed: each iteration restarts Push-Sum and runs it until it has mixed.

    Examples
    --------
    >>> gadget_as_printed()
    Gadget(gossip='push-sum', gossip_rounds='mix', mass='restarted')
    """
    return Gadget(gossip="push-sum", gossip_rounds="mix", mass="restarted")
