"""What every message promises: the same on the way out and on the way in. Owns the rules for single values too."""

import re
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv6Address

import numpy as np

from gadget_svm.peers.member import Member, State
from gadget_svm.peers.messages import (
    CERTIFICATE_BYTES,
    CHARTER_BYTES,
    COUNT,
    DIGEST_BYTES,
    KEPT,
    LARGEST,
    MEMBERS,
    NONCE_BYTES,
    RUN_BYTES,
    SIGNATURE_BYTES,
    TEXT_BYTES,
    Ack,
    Floats,
    Hello,
    HelloReply,
    Kept,
    Letter,
    Malformed,
    Notice,
    Reason,
    Statistics,
    entries_per_message,
)
from gadget_svm.peers.naming import NAME

HOST = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9_])?"
ADDRESS = re.compile(rf"(?:\[([0-9A-Fa-f:.]{{2,45}})\]|{HOST}):([1-9][0-9]{{0,4}})")
BOUND = int(np.float64(LARGEST).view(np.int64))
BOUND32 = int(np.float64(np.finfo(np.float32).max).view(np.int64))


def within(vector: Floats, bound: int) -> bool:
    """All finite and within a bound, given as its bits: those of doubles order like the numbers, NaN beyond infinity.

    Signed, the largest is that of the positive ones; unsigned, that of the negative ones, which have the top bit.
    """
    if not len(vector):
        return True
    positive, negative = vector.view(np.int64).max(), vector.view(np.uint64).max()
    return int(positive) <= bound and int(negative) <= COUNT + bound


def check_vector(vector: Floats) -> None:
    """One row of float64, within bounds."""
    if vector.ndim != 1 or vector.dtype != np.float64:
        raise Malformed("dimension", f"a vector is one row of float64, this is {vector.dtype} of shape {vector.shape}")
    if not within(vector, BOUND):
        raise Malformed("not-finite", f"the vector holds NaN, infinity or a number beyond {LARGEST:g}")


def check_number(value: float, what: str) -> None:
    """Finite, within bounds."""
    if not -LARGEST <= value <= LARGEST:  # NaN is not
        raise Malformed("not-finite", f"{what} is {value!r}: not finite, or beyond {LARGEST:g}")


def check_count(value: int, what: str, least: int = 0) -> None:
    """A count that fits an int64."""
    if not least <= value < COUNT:
        raise Malformed("sequence", f"{what} is {value}, allowed {least} to 2**63 - 1")


def check_name(name: str) -> None:
    """A peer's name."""
    if not NAME.fullmatch(name):
        raise Malformed("name", f"{name[:64]!r} is no name: 1 to 63 of a-z, 0-9, '.', '-', not at the ends")


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
        raise Malformed("name", f"{address[:80]!r} is no address: host:port or [IPv6]:port")


def check_size(value: str, most: int, what: str) -> None:
    """A text of so many bytes at most, whatever it says."""
    try:
        size = len(value) if len(value) > most or value.isascii() else len(value.encode())
    except UnicodeEncodeError:
        raise Malformed("garbage", f"the {what} holds half a sign (a lone surrogate)") from None
    if size > most:
        raise Malformed("too-large", f"the {what} takes {size} bytes, allowed {most}")


def check_text(text: str) -> None:
    """One printable line, since it may end up in a log."""
    if text:
        if not text.isprintable():
            raise Malformed("garbage", "the text is not one printable line")
        check_size(text, TEXT_BYTES, "text")


def check_bytes(value: bytes, what: str, least: int, most: int) -> None:
    """Neither too short nor too long."""
    if not least <= len(value) <= most:
        reason: Reason = "too-large" if len(value) > most else "garbage"
        raise Malformed(reason, f"the {what} has {len(value)} bytes, allowed {least} to {most}")


def check_members(members: Sequence[Member]) -> None:
    """A piece of a view."""
    if len(members) > MEMBERS:
        raise Malformed("members", f"{len(members)} members in one message, allowed {MEMBERS}")
    for m in members:
        check_name(m.name)
        if m.address or m.state < State.DEAD:  # where one was who is gone need not be known
            check_address(m.address)
        check_count(m.incarnation, "a member's incarnation", 1)
        check_count(m.beat, "a member's beat")
        for value in (m.rows, m.loss, m.slack, m.objective):
            check_number(value, "a member's number")
        if m.rows < 0:
            raise Malformed("members", f"a member with {m.rows} rows")


def check_letter(letter: Letter) -> None:
    """A letter."""
    if len(letter.run) != RUN_BYTES:
        raise Malformed("run", f"a run is known by {RUN_BYTES} bytes, not {len(letter.run)}")
    check_name(letter.sender)
    check_name(letter.receiver)
    check_count(letter.incarnation, "the sender's incarnation", 1)
    check_count(letter.receiver_incarnation, "the receiver's incarnation")
    check_count(letter.seq, "the sequence number")
    check_count(letter.time, "the time")
    check_number(letter.weight, "the weight")
    if letter.note is not None:
        check_number(letter.note, "the note")
    if letter.vector is not None:
        check_vector(letter.vector)
    check_members(letter.members)
    if letter.last and letter.vector is None:
        raise Malformed("garbage", "a last letter says what is to be kept, this one has no vector")
    if letter.kept:
        check_kept(letter.kept)


def check_kept(kept: Sequence[Kept]) -> None:
    """Those who have left, and are part of the sender's pull."""
    if len(kept) > KEPT or len({each.name for each in kept}) < len(kept):
        raise Malformed("members", f"{len(kept)} names are kept, allowed {KEPT} and none twice")
    for each in kept:
        check_name(each.name)
        check_count(each.incarnation, "the incarnation of one who is kept", 1)


def check_ack(ack: Ack) -> None:
    """An answer."""
    check_count(ack.incarnation, "the incarnation", 1)
    check_count(ack.beat, "the beat")
    check_text(ack.text)
    check_members(ack.members)


def check_hello(hello: Hello) -> None:
    """The first words."""
    check_name(hello.name)
    check_address(hello.address)
    check_count(hello.incarnation, "the incarnation", 1)
    check_bytes(hello.nonce, "nonce", NONCE_BYTES, NONCE_BYTES)
    check_size(hello.charter, CHARTER_BYTES, "charter")
    check_members(hello.members)


def check_hello_reply(reply: HelloReply) -> None:
    """The answer to them."""
    check_hello(reply)
    check_text(reply.text)
    check_bytes(reply.certificate, "certificate", 0, CERTIFICATE_BYTES)
    check_bytes(reply.signature, "signature", 0, SIGNATURE_BYTES)


def check_statistics(statistics: Statistics) -> None:
    """The scaler's entries: no site twice, one length, not too many."""
    check_name(statistics.name)
    if statistics.frozen:
        check_bytes(statistics.frozen, "digest", DIGEST_BYTES, DIGEST_BYTES)
    lengths: set[int] = set()
    for entry in statistics.entries:
        check_name(entry.name)
        check_number(entry.rows, "the number of rows")
        if entry.rows < 0:
            raise Malformed("members", f"an entry of {entry.rows} rows")
        for vector in (entry.sum, entry.spread, entry.largest):
            if vector is not None:
                check_vector(vector)
                lengths.add(len(vector))
    if len(lengths) > 1:
        raise Malformed("dimension", f"vectors of several lengths in one message: {sorted(lengths)[:4]}")
    most = entries_per_message(max(lengths, default=0))
    if len(statistics.entries) > most:
        raise Malformed("members", f"{len(statistics.entries)} entries in one message, allowed {most}")
    if len({entry.name for entry in statistics.entries}) < len(statistics.entries):
        raise Malformed("members", "two entries of one site: it would count twice")


def check_notice(notice: Notice) -> None:
    """A notice."""
    check_name(notice.name)
    check_count(notice.incarnation, "the incarnation")
    check_text(notice.text)
