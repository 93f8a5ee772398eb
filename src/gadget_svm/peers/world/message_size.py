"""How many bytes a message takes on the wire, estimated from its fields: the network charges for them."""

from collections.abc import Callable, Collection
from typing import Any

from gadget_svm.peers.wire.messages import (
    Acknowledgement,
    CertificateProbe,
    CertificateSums,
    Certified,
    Heartbeat,
    Hello,
    Message,
    Push,
    Refusal,
    Statistics,
)  # fmt: skip

HEADER_BYTES = 24
MEMBER_BYTES = 60
SITE_BYTES = 30
SIGNATURE_BYTES = 1200  # of a hello: nonce, certificate and signature


def message_bytes(message: Message) -> int:
    """Return about how many bytes a message takes."""
    return HEADER_BYTES + _SIZES.get(type(message), _small)(message)


def _small(_message: Any) -> int:
    return 16


def _members(message: Any) -> int:
    return 16 + MEMBER_BYTES * len(message.members)


def _hello(message: Hello) -> int:
    return SIGNATURE_BYTES + len(message.study) + _members(message)


def _push(message: Push) -> int:
    return 40 + (4 if message.float32 else 8) * len(message.vector)


def _statistics(message: Statistics) -> int:
    vectors = (part for e in message.entries for part in (e.sum, e.spread, e.largest) if part is not None)
    return SITE_BYTES * len(message.entries) + 8 * sum(len(part) for part in vectors)


def _vectors(*names: str) -> Callable[[Any], int]:
    def size(message: Any) -> int:
        sites: Collection[Any] = getattr(message, "sites", ())
        numbers: int = sum(getattr(message, name).size for name in names)
        return 40 + 8 * numbers + SITE_BYTES * len(sites)

    return size


_SIZES: dict[type[Any], Callable[[Any], int]] = {
    Hello: _hello,
    Refusal: _members,
    Heartbeat: _members,
    Push: _push,
    Acknowledgement: _small,
    Statistics: _statistics,
    CertificateProbe: _vectors("model"),
    CertificateSums: _vectors("sums"),
    Certified: _vectors("model", "bounds", "duals"),
}
