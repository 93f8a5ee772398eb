"""What a site's rows have spent in private studies: rounds that were reserved, by study. A value; knows no files.

Rounds are recorded before a noisy slope of them is released, so the ledger is never below what was released. The sum of
mu^2 over all noisy slopes is the budget of Gaussian differential privacy (see `gadget_svm.privacy`); half of it is rho
of zero-concentrated differential privacy.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace

FORMAT = 1


class LedgerError(ValueError):
    """A ledger that cannot be used, and the fix."""


@dataclass(frozen=True)
class Spent:
    """What one study has taken."""

    name: str
    rounds: int = 0
    mu_squared: float = 0.0  # of all rounds together


@dataclass(frozen=True)
class Ledger:
    """All studies of a site's rows, by their digest in hexadecimal digits."""

    studies: Mapping[str, Spent] = field(default_factory=dict)

    def rounds(self, digest: str) -> int:
        """Return how many rounds of a study are recorded."""
        return self.studies[digest].rounds if digest in self.studies else 0

    @property
    def mu_squared(self) -> float:
        """The sum over all studies."""
        return math.fsum(spent.mu_squared for spent in self.studies.values())

    def reserve(self, digest: str, name: str, rounds: int, mu_squared: float) -> "Ledger":
        """Return the ledger with so many more rounds of a study, each of which adds ``mu_squared``."""
        total = self.rounds(digest) + rounds
        return replace(self, studies={**self.studies, digest: Spent(name, total, total * mu_squared)})

    def text(self) -> str:
        """Return the ledger as JSON."""
        studies = {digest: asdict(spent) for digest, spent in sorted(self.studies.items())}
        return json.dumps({"format": FORMAT, "studies": studies}, indent=2, allow_nan=False) + "\n"

    @classmethod
    def parse(cls, text: str) -> "Ledger":
        """Read a ledger; LedgerError if it is damaged or of another version."""
        try:
            values = json.loads(text)
            if values["format"] != FORMAT:
                raise LedgerError(
                    f"it has format {values['format']!r}: install the version of gadget-svm that wrote it"
                )
            ledger = cls({digest: Spent(**spent) for digest, spent in values["studies"].items()})
            good = all(
                isinstance(spent.rounds, int) and spent.rounds >= 0 and 0.0 <= spent.mu_squared < math.inf
                for spent in ledger.studies.values()
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if isinstance(error, LedgerError):
                raise
            raise LedgerError(
                f"it is damaged ({error!r}): restore a copy that is not older than the last run"
            ) from error
        if not good:
            raise LedgerError("it holds counts that cannot be: restore a copy that is not older than the last run")
        return ledger
