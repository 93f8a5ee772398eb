"""The rules for the values in messages, the same for messages that are sent and received. Knows no bytes.

`check` refuses a message by a `MalformedError`; whether its sender may say it is not decided here.
"""

import re
from collections.abc import Callable, Sequence
from ipaddress import AddressValueError, IPv6Address
from typing import Any

import numpy as np

from gadget_svm.core.types import Floats
from gadget_svm.peers.membership.member import Member, State
from gadget_svm.peers.names import NAME
from gadget_svm.peers.wire import limits as bounds
from gadget_svm.peers.wire import messages as m
from gadget_svm.peers.wire.limits import COUNT, DIGEST_BYTES, LARGEST, TEXT_BYTES, Limits, MalformedError

HOST = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?"
ADDRESS = re.compile(rf"(?:\[([0-9A-Fa-f:.]{{2,45}})\]|{HOST}):([1-9][0-9]{{0,4}})")
BOUND = int(np.float64(LARGEST).view(np.int64))
BOUND32 = int(np.float64(np.finfo(np.float32).max).view(np.int64))


def check(message: Any, limits: Limits) -> None:
    """Refuse a message that breaks a rule."""
    _CHECKS[type(message)](message, limits)


def within(vector: Floats, bound: int) -> bool:
    """Return whether all numbers are finite and within a bound, which is given as the bits of a float64.

    The bits of float64 numbers order like the numbers, with NaN beyond infinity: read as signed integers, the largest
    is that of the positive numbers; as unsigned integers, that of the negative ones, which have the top bit.
    """
    if not len(vector):
        return True
    positive, negative = vector.view(np.int64).max(), vector.view(np.uint64).max()
    return int(positive) <= bound and int(negative) <= 2**63 + bound


def check_vector(vector: Floats, length: int) -> None:
    """One row of float64 of this length, within bounds."""
    if vector.ndim != 1 or vector.dtype != np.float64:
        raise MalformedError("dimension", f"a vector is one row of float64, not {vector.dtype} of {vector.shape}")
    if len(vector) != length:
        raise MalformedError("dimension", f"a vector of {len(vector)} numbers, expected {length}")
    if not within(vector, BOUND):
        raise MalformedError("not-finite", f"a vector holds NaN, infinity or a number beyond {LARGEST:g}")


def check_number(value: float, what: str, least: float = -LARGEST, most: float = LARGEST) -> None:
    """Finite, within bounds."""
    if not -LARGEST <= value <= LARGEST:  # NaN is not
        raise MalformedError("not-finite", f"{what} is {value!r}: not finite, or beyond {LARGEST:g}")
    if not least <= value <= most:
        raise MalformedError("range", f"{what} is {value!r}, allowed {least:g} to {most:g}")


def check_count(value: int, what: str, least: int = 0) -> None:
    """A counter within bounds."""
    if not least <= value < COUNT:
        raise MalformedError("sequence", f"{what} is {value}, allowed {least} to 2**62 - 1")


def check_name(name: str) -> None:
    """A peer's name."""
    if not NAME.fullmatch(name):
        raise MalformedError("name", f"{name[:64]!r} is not a name: 1 to 63 of a-z, 0-9, '.', '-', not at the ends")


def check_address(address: str) -> None:
    """host:port or [IPv6]:port."""
    match = ADDRESS.fullmatch(address)
    good = match is not None and int(match[2]) < 65536
    if match is not None and match[1] is not None:
        try:
            IPv6Address(match[1])
        except AddressValueError:
            good = False
    if not good:
        raise MalformedError("name", f"{address[:80]!r} is not an address: host:port or [IPv6]:port")


def check_size(text: str, most: int, what: str) -> None:
    """A text of so many bytes at most."""
    try:
        size = len(text) if len(text) > most or text.isascii() else len(text.encode())
    except UnicodeEncodeError:
        raise MalformedError("garbage", f"the {what} holds half a character (a lone surrogate)") from None
    if size > most:
        raise MalformedError("too-large", f"the {what} takes {size} bytes, allowed {most}")


def check_text(text: str, most: int = TEXT_BYTES) -> None:
    """One printable line, since it may end up in a log."""
    if text:
        if not text.isprintable():
            raise MalformedError("garbage", "the text is not one printable line")
        check_size(text, most, "text")


def check_bytes(value: bytes, what: str, least: int, most: int) -> None:
    """Neither too short nor too long."""
    if not least <= len(value) <= most:
        raise MalformedError(
            "too-large" if len(value) > most else "garbage",
            f"the {what} has {len(value)} bytes, allowed {least} to {most}",
        )


def check_digest(value: bytes, what: str) -> None:
    """A digest, or nothing."""
    if value:
        check_bytes(value, what, DIGEST_BYTES, DIGEST_BYTES)


def check_members(members: Sequence[Member]) -> None:
    """A part of a view."""
    if len(members) > bounds.MEMBERS:
        raise MalformedError("members", f"{len(members)} members in one message, allowed {bounds.MEMBERS}")
    for member in members:
        check_name(member.name)
        if member.address or (member.reachable and member.state < State.DEAD):
            check_address(member.address)
        check_count(member.incarnation, "a member's incarnation", 1)
        check_count(member.beat, "a member's beat")
        check_number(member.rows, "a member's number of rows", least=0.0)
        for value in (member.loss, member.slack, member.objective):
            check_number(value, "a member's number")
        check_text(member.certified, bounds.CERTIFIED_BYTES)


def check_sites(sites: Sequence[m.CoveredSite], limits: Limits) -> None:
    """The sites that a certificate covers: at least one, none twice."""
    if not 1 <= len(sites) <= limits.sites:
        raise MalformedError("members", f"a certificate of {len(sites)} sites, allowed 1 to {limits.sites}")
    for site in sites:
        check_name(site.name)
        check_count(site.incarnation, "a site's incarnation", 1)
        check_number(site.rows, "a site's number of rows", least=0.0)
    if len({site.name for site in sites}) < len(sites):
        raise MalformedError("members", "a certificate covers a site twice")


def _challenge(message: m.Challenge, _: Limits) -> None:
    check_bytes(message.nonce, "nonce", bounds.NONCE_BYTES, bounds.NONCE_BYTES)
    check_bytes(message.certificate, "certificate", 1, bounds.CERTIFICATE_BYTES)


def _hello(message: m.Hello, _: Limits) -> None:
    check_name(message.name)
    check_count(message.incarnation, "the incarnation", 1)
    check_size(message.study, bounds.STUDY_BYTES, "study")
    check_bytes(message.digest, "digest", DIGEST_BYTES, DIGEST_BYTES)
    if message.address:
        check_address(message.address)
    check_members(message.members)


def _signed_hello(message: m.SignedHello, limits: Limits) -> None:
    check_bytes(message.signature, "signature", 0, bounds.SIGNATURE_BYTES)
    check_bytes(message.hello, "hello", 1, limits.sizes["Hello"])


def _refusal(message: m.Refusal, _: Limits) -> None:
    check_text(message.text)
    check_members(message.members)


def _heartbeat(message: m.Heartbeat, _: Limits) -> None:
    check_count(message.number, "the number")
    check_count(message.incarnation, "the incarnation", 1)
    check_count(message.receiver_incarnation, "the receiver's incarnation")
    check_members(message.members)


def _push(message: m.Push, limits: Limits) -> None:
    check_count(message.incarnation, "the incarnation", 1)
    check_count(message.receiver_incarnation, "the receiver's incarnation")
    check_count(message.seq, "the sequence number")
    check_count(message.time, "the time")
    check_number(message.weight, "the weight", *bounds.WEIGHTS[limits.algorithm])
    if (message.note is None) is (limits.algorithm == "pdmm"):
        raise MalformedError("garbage", f"a push of {limits.algorithm} has a note only if that is pdmm")
    if message.note is not None:
        check_number(message.note, "the note", least=0.0)
    check_digest(message.scale, "digest of the scale")
    check_vector(message.vector, limits.dimension)


def _acknowledgement(message: m.Acknowledgement, _: Limits) -> None:
    check_count(message.seq, "the sequence number")
    check_count(message.incarnation, "the incarnation", 1)


def _statistics(message: m.Statistics, limits: Limits) -> None:
    if len(message.entries) > limits.entries:
        raise MalformedError("members", f"{len(message.entries)} entries in one message, allowed {limits.entries}")
    for entry in message.entries:
        check_name(entry.name)
        check_number(entry.rows, "the number of rows", least=0.0)
        for vector in (entry.sum, entry.spread, entry.largest):
            if vector is not None:
                check_vector(vector, limits.features)
    if len({entry.name for entry in message.entries}) < len(message.entries):
        raise MalformedError("members", "two entries of one site: it would count twice")
    check_digest(message.frozen, "digest")


def _id(id: m.CertificateId) -> None:
    check_count(id.number, "the certificate's number")
    check_name(id.initiator)
    check_count(id.incarnation, "the initiator's incarnation", 1)


def _probe(message: m.CertificateProbe, limits: Limits) -> None:
    _id(message.id)
    check_number(message.time, "the time", least=0.0)
    check_digest(message.scale, "digest of the scale")
    check_vector(message.model, limits.dimension if message.model.size else 0)
    check_name(message.parent)


def _sums(message: m.CertificateSums, limits: Limits) -> None:
    _id(message.id)
    check_vector(message.sums, limits.sums)
    check_sites(message.sites, limits)


def _certified(message: m.Certified, limits: Limits) -> None:
    _id(message.id)
    check_number(message.time, "the time", least=0.0)
    check_digest(message.scale, "digest of the scale")
    check_vector(message.model, limits.dimension)
    check_vector(message.bounds, limits.outputs)
    check_vector(message.duals, limits.outputs)
    check_sites(message.sites, limits)
    check_count(message.ticks, "the ticks")


def _leave(message: m.Leave, _: Limits) -> None:
    check_count(message.incarnation, "the incarnation", 1)
    check_text(message.reason)


_CHECKS: dict[type, Callable[[Any, Limits], None]] = {
    m.Challenge: _challenge, m.Hello: _hello, m.SignedHello: _signed_hello, m.Refusal: _refusal,
    m.Heartbeat: _heartbeat, m.Push: _push, m.Acknowledgement: _acknowledgement, m.Statistics: _statistics,
    m.CertificateProbe: _probe, m.CertificateSums: _sums, m.Certified: _certified, m.Leave: _leave,
}  # fmt: skip
