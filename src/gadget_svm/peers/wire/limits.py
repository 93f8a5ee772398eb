"""How large messages and their values may be, and the error for those that exceed it. Makes no checks itself."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from gadget_svm.study.study import Study

Reason = Literal[
    "garbage", "version", "name", "dimension", "not-finite", "range", "too-large", "sequence", "members"
]  # fmt: skip

LARGEST = 1e100
"""No number in a message is larger, so that sums and squares of a few stay finite."""
COUNT = 2**62
"""No counter is larger: neither an incarnation nor a sequence number."""
WEIGHTS = {"pdmm": (1 / LARGEST, LARGEST), "gadget": (1e-15, 1e18), "private": (1e-15, 1e18)}
"""The range of a push's weight: PDMM's penalty of an edge, of which a learner knows what is plausible; GADGET's running
sum of push-sum weights, which count rows; rows over neighbours in a private study."""
NONCE_BYTES, DIGEST_BYTES = 32, 32
CERTIFICATE_BYTES, SIGNATURE_BYTES = 16 * 1024, 1024
MEMBERS, MEMBER_BYTES, CERTIFIED_BYTES = 32, 640, 128
SITE_BYTES = 128
TEXT_BYTES, STUDY_BYTES, STATUS_BYTES = 1024, 2 * 1024 * 1024, 4 * 1024 * 1024
ENTRIES, STATISTICS_BYTES = 64, 16 * 1024 * 1024
FIELDS, SPARE = 64, 4096
"""Fields of one message besides the repeated ones, and bytes besides those of known fields: room for later fields."""
HELLO_BYTES = STUDY_BYTES + MEMBERS * (MEMBER_BYTES + 4) + SPARE


class MalformedError(ValueError):
    """A message that is refused. ``reason`` is a word for counters, the text a sentence for people."""

    def __init__(self, reason: Reason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


@dataclass(frozen=True)
class Limits:
    """What the study implies for its messages: the lengths of vectors, and the range of weights."""

    algorithm: str
    features: int  # of a vector of statistics
    outputs: int
    dimension: int  # of a model
    sites: int = 10_000  # in one certificate

    @classmethod
    def of(cls, study: "Study", sites: int = 10_000) -> "Limits":
        """Return the limits for a study."""
        return cls(study.algorithm, study.n_features, study.outputs, study.dimension, sites)

    @property
    def sums(self) -> int:
        """The length of a certificate's sums, as in `kernels.certificate.widths`. A private study has none."""
        return 0 if self.algorithm == "private" else self.dimension + 4 * self.outputs + 3

    @property
    def bounds(self) -> int:
        """The length of a certificate's bounds. A private study has none."""
        return 0 if self.algorithm == "private" else self.outputs

    @cached_property
    def repeated(self) -> dict[str, tuple[int, int]]:
        """How often each repeated field may be in one message, and the size of one in bytes."""
        entry = 3 * 8 * self.features + SITE_BYTES
        entries = max(1, min(ENTRIES, STATISTICS_BYTES // entry))
        return {"members": (MEMBERS, MEMBER_BYTES), "sites": (self.sites, SITE_BYTES), "entries": (entries, entry)}

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The largest size of each kind of message in bytes."""
        members, sites, entries = (most * (size + 4) for most, size in self.repeated.values())
        model = 8 * self.dimension
        beside = {
            "Challenge": CERTIFICATE_BYTES, "SignedHello": HELLO_BYTES + SIGNATURE_BYTES,
            "Hello": STUDY_BYTES + members, "Refusal": TEXT_BYTES + members, "Heartbeat": members, "Push": model,
            "Acknowledgement": 0, "Statistics": entries, "CertificateProbe": model,
            "CertificateSums": 8 * self.sums + sites, "Certified": model + 16 * self.outputs + sites,
            "Leave": TEXT_BYTES,
        }  # fmt: skip
        return {kind: size + SPARE for kind, size in beside.items()}

    @property
    def entries(self) -> int:
        """How many sites' statistics fit into one message."""
        return self.repeated["entries"][0]

    @cached_property
    def frame_bytes(self) -> int:
        """The size of the largest frame."""
        return max(self.sizes.values()) + SPARE


def printable(text: str) -> str:
    """Return any text as one that a message may carry: one printable line that is not too long."""
    line = "".join(sign if sign.isprintable() else " " for sign in text[:TEXT_BYTES])
    return line.encode()[:TEXT_BYTES].decode(errors="ignore")
