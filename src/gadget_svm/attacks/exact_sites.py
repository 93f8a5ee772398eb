"""Sites that learn as peers do, with exact rows (PDMM), and one neighbour that chooses what it pushes.

Sites run `peers.training.trainer.Trainer`. The attacker is node 0. It holds a certificate, and sends nothing that a
peer would refuse.
"""

from collections.abc import Sequence

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.types import Floats, Indices
from gadget_svm.peers.training.learner import THETA, NodeMessage
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.training.trainer import TickInput, Trainer
from gadget_svm.peers.wire.limits import LARGEST
from gadget_svm.study.study import Study

ATTACKER, FIRST = 0, 1
SIZE = 1e6
"""c, the length of the model c (u, -t). It is so large that even a row next to the plane has a large margin."""
HOLD_TICKS = 34
"""Ticks per question. A site skips a row at its bound for at most 30 passes, so it uses every row in this time."""
HOLD_TICKS_OF_SEVERAL = 240
"""Ticks per question if other sites answer too: all sites must reach agreement."""


class ExactSites:
    """One site, or several that are each other's neighbours; the attacker is a neighbour of the first.

    Several sites answer with sums over all their rows.

    Parameters
    ----------
    shards : sequence of (X, label)
        The rows of each site, with labels 0 and 1.
    lam : float, default 1e-3
        The regulariser of the study.

    Attributes
    ----------
    ticks : int
        How many ticks the sites did.
    """

    def __init__(self, shards: Sequence[tuple[sp.csr_matrix, Indices]], lam: float = 1e-3) -> None:
        width = shards[0][0].shape[1]
        study, scale = Study("attack", lam, width, (-1.0, 1.0)), Scale(np.ones(width), np.zeros(width))
        self.sites = {
            number: Trainer(study, Site(X, label, study.classes), number, number, scale, None, None)
            for number, (X, label) in enumerate(shards, start=1)
        }
        first = {ATTACKER: "attacker"}
        self._wanted = {
            number: {other: f"site {other}" for other in self.sites if other != number}
            | (first if number == FIRST else {})
            for number in self.sites
        }
        self._inbox: dict[int, list[NodeMessage]] = {number: [] for number in self.sites}
        n_rows = sum(X.shape[0] for X, _ in shards)
        self.rho = float(n_rows)
        self.kappa = n_rows * lam + self.rho
        self.hold = HOLD_TICKS if len(shards) == 1 else HOLD_TICKS_OF_SEVERAL
        self.ticks = self._sent = 0
        self._z = np.zeros(width + 1)

    def ask(self, u: Floats, t: float, answer: Floats | None = None) -> Floats:
        """Push until the model is c (u, -t), and return v, the sum of alpha y x, computed from the site's next push.

        kappa w = v - A z holds at the site, with kappa = n lam + rho. With several sites it holds for the sums of v and
        of n, once the sites agree on w.
        """
        target = self.kappa * SIZE * np.append(u, -t) - (0.0 if answer is None else answer)  # A = -1 at the site
        told = None
        for _ in range(self.hold):
            found = self._exchange((target - (1.0 - THETA) * self._z) / THETA)  # so that z is the target at once
            told = told if found is None else found  # a site pushes to one neighbour in a tick
        assert told is not None, "a site that ticks so often has pushed to every neighbour"
        return told

    def _exchange(self, push: Floats) -> Floats | None:
        """Send a push, and return v as computed from the site's push in the same tick."""
        if not self.sites[FIRST].learner.is_plausible(self.rho, self._sent) or np.abs(push).max() > LARGEST:
            raise RuntimeError("a peer refuses this push: ask with another size, or another penalty")
        z = self._z
        self._inbox[FIRST].append(NodeMessage(ATTACKER, self._sent, push, self.rho, 0.0))
        self._sent += 1
        told = self._tick()
        self._z = (1.0 - THETA) * z + THETA * push
        if told is None:
            return None
        w = (z - told) / (2.0 * self.rho)  # the push is z + 2 rho A w
        return np.asarray(self.kappa * w - z)

    def _tick(self) -> Floats | None:
        """Let every site do a tick; return what the attacker receives."""
        told, self.ticks, inbox = None, self.ticks + 1, self._inbox
        self._inbox = {number: [] for number in self.sites}
        for number, trainer in self.sites.items():
            wanted = self._wanted[number]
            result = trainer.tick(TickInput(wanted, (), set(wanted), inbox[number], None))
            for name, seq, vector, weight, note in result.sent:
                if name == "attacker":
                    told = vector.copy()
                else:
                    self._inbox[int(name.split()[1])].append(NodeMessage(number, seq, vector.copy(), weight, note))
        return told
