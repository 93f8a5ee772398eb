"""The privacy budget of a node: which rounds of its plan are recorded in the ledger, and may be released.

Rounds are reserved in blocks, on disk, before the first noisy slope of a block is released. What was reserved counts as
spent, whatever happens: after a kill, with an older snapshot and from scratch the node has the rest of the plan only.
"""

from math import sqrt
from typing import Any

from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.storage.ledger import Ledger
from gadget_svm.peers.write_schedule import WriteSchedule
from gadget_svm.privacy import epsilon_of
from gadget_svm.study.study import Study

LARGEST_BLOCK, BLOCKS = 10, 20
"""A block is a twentieth of the plan, and at most ten rounds: so much a kill may cost."""


class Spending:
    """What one node may release of its rows in a private study."""

    def __init__(self, settings: NodeSettings, study: Study, schedule: WriteSchedule) -> None:
        self.settings, self.study, self._schedule = settings, study, schedule
        self.ledger = Ledger()  # as it is on disk
        self._written: Ledger | None = None  # on its way to the disk
        self._digest = study.digest.hex()
        self._planned = study.rounds or 0
        self._per_round = study.budget().mu ** 2 / self._planned
        self._block = min(LARGEST_BLOCK, max(1, self._planned // BLOCKS))

    def begin(self, ledger: Ledger | None, has_state: bool) -> None:
        """Take the ledger as it is on disk, or begin one. ValueError: the node must not go on."""
        if ledger is None and has_state:
            raise ValueError(
                "the privacy ledger is missing, and the saved state shows that rows were used before: put the ledger "
                "back to where [peer] ledger says. If it is lost, what was spent is not known: take part in no more "
                "private studies with these rows, or start anew with --fresh if nothing was ever released"
            )
        self.ledger = ledger or Ledger()
        limit, delta = self.settings.epsilon_limit, self.settings.limit_delta
        others = self.ledger.mu_squared - self._own_mu_squared
        total = epsilon_of(sqrt(max(0.0, others) + max(self._planned * self._per_round, self._own_mu_squared)), delta)
        if limit is not None and total > limit * (1.0 + 1e-9):
            raise ValueError(
                f"with this study, all private studies of these rows would spend epsilon {total:.4g} at delta "
                f"{delta:g}, above [privacy] epsilon_limit {limit:g}: take no part, or raise the limit"
            )
        if ledger is None or self._digest not in ledger.studies:
            self._write(0)

    @property
    def rounds(self) -> int:
        """The rounds of the plan that are recorded on disk."""
        return self.ledger.rounds(self._digest)

    def reserve(self) -> None:
        """Have the next block recorded, unless that is under way."""
        block = min(self._block, self._planned - self.rounds)
        if self._written is None and block > 0:
            self._write(block)

    def saved(self) -> None:
        """Note that the ledger is on disk."""
        self.ledger, self._written = self._written or self.ledger, None

    def failed(self) -> None:
        """Note that the ledger could not be written: nothing of the block may be released."""
        self._written = None

    def status(self) -> dict[str, Any]:
        """Return what is spent and planned, as plain values."""
        study, total = self.study, self.ledger.mu_squared
        assert study.delta is not None
        return {
            "epsilon": study.epsilon, "delta": study.delta, "rounds_planned": self._planned,
            "rounds_reserved": self.rounds, "epsilon_spent": epsilon_of(sqrt(self._own_mu_squared), study.delta),
            "epsilon_spent_in_all_studies": epsilon_of(sqrt(total), self.settings.limit_delta),
            "epsilon_limit": self.settings.epsilon_limit,
        }  # fmt: skip

    @property
    def _own_mu_squared(self) -> float:
        spent = self.ledger.studies.get(self._digest)
        return 0.0 if spent is None else spent.mu_squared

    def _write(self, rounds: int) -> None:
        self._written = self.ledger.reserve(self._digest, self.study.name, rounds, self._per_round)
        self._schedule.spend(self._written)
