"""The rules for the values in messages, the same for messages that are sent and received. Knows no bytes.

`check` refuses a message by a `MalformedError`; whether its sender may say it is not decided here.
"""

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from gadget_svm.core.types import Floats
from gadget_svm.peers.membership.member import State
from gadget_svm.peers.names import NAME, check_endpoint
from gadget_svm.peers.wire import limits as bounds
from gadget_svm.peers.wire import messages as m
from gadget_svm.peers.wire.limits import LARGEST, Limits, MalformedError

BOUND = int(np.float64(LARGEST).view(np.int64))
BOUND32 = int(np.float64(np.finfo(np.float32).max).view(np.int64))
Rule = Callable[[Any, str, Limits], None]
"""A check of a value; also gets the name of its field."""


def check(message: Any, limits: Limits) -> None:
    """Refuse a message that breaks a rule."""
    kind: Any = type(message)
    for name, rule in _rules(kind):
        RULES[rule](getattr(message, name), name, limits)


def within(vector: Floats, bound: int) -> bool:
    """Return whether all numbers are finite and within a bound, which is given as the bits of a float64.

    The bits of float64 numbers order like the numbers, with NaN beyond infinity: read as signed integers, the largest
    is that of the positive numbers; as unsigned integers, that of the negative ones, which have the top bit.
    """
    if not len(vector):
        return True
    positive, negative = vector.view(np.int64).max(), vector.view(np.uint64).max()
    return int(positive) <= bound and int(negative) <= 2**63 + bound


def check_vector(vector: Floats | None, name: str, limits: Limits, of: str) -> None:
    """One row of float64, as long as the limits say of this kind, within bounds. None if its message may lack it."""
    if vector is None:
        return
    if vector.ndim != 1 or vector.dtype != np.float64:
        raise MalformedError("dimension", f"a vector is one row of float64, not {vector.dtype} of {vector.shape}")
    if len(vector) != (length := getattr(limits, of)):
        wanted = f"expected {length}: do the peers have the same study?"
        raise MalformedError("dimension", f"{name} has {len(vector)} numbers, {wanted}")
    if not within(vector, BOUND):
        raise MalformedError("not-finite", f"{name} holds NaN, infinity or a number beyond {LARGEST:g}")


def check_number(value: float, name: str, _: Any, least: float = 0.0, most: float = LARGEST) -> None:
    """Finite, within bounds."""
    if not -LARGEST <= value <= LARGEST:  # NaN is not
        raise MalformedError("not-finite", f"{name} is {value!r}: not finite, or beyond {LARGEST:g}")
    if not least <= value <= most:
        raise MalformedError("range", f"{name} is {value!r}, allowed {least:g} to {most:g}")


def check_note(note: float | None, name: str, limits: Limits) -> None:
    """A push of PDMM has a note. A push of GADGET has none."""
    if (note is None) is (limits.algorithm == "pdmm"):
        raise MalformedError("garbage", f"a push of {limits.algorithm} has a note only if that is pdmm")
    if note is not None:
        check_number(note, name, limits)


def check_count(value: int, name: str, _: Any, least: int = 0) -> None:
    """A counter within bounds."""
    if not least <= value < bounds.COUNT:
        raise MalformedError("sequence", f"{name} is {value}, allowed {least} to 2**62 - 1")


def check_name(name: str, *_: Any) -> None:
    """A peer's name."""
    if not NAME.fullmatch(name):
        raise MalformedError("name", f"{name[:64]!r} is not a name: 1 to 63 of a-z, 0-9, '.', '-', not at the ends")


def check_address(address: str, *_: Any) -> None:
    """host:port or [IPv6]:port, or nothing."""
    if address and not _is_endpoint(address):
        raise MalformedError("name", f"{address[:80]!r} is not an address: host:port or [IPv6]:port in lower case")


def check_text(text: str, name: str, _: Any = None, most: int = bounds.TEXT_BYTES, lines: bool = False) -> None:
    """One printable line, since it may end up in a log; or any ``lines``."""
    if not lines and not text.isprintable():
        raise MalformedError("garbage", f"{name} is not one printable line")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise MalformedError("garbage", f"{name} holds half a character (a lone surrogate)") from None
    if size > most:
        raise MalformedError("too-large", f"{name} takes {size} bytes, allowed {most}")


def check_bytes(value: bytes, name: str, _: Any, least: int, most: int) -> None:
    """Neither too short nor too long."""
    if not least <= len(value) <= most:
        reason: bounds.Reason = "too-large" if len(value) > most else "garbage"
        raise MalformedError(reason, f"{name} has {len(value)} bytes, allowed {least} to {most}")


def check_version(version: int, *_: Any) -> None:
    """The version of the protocol that we speak."""
    if version != m.VERSION:
        says = f"speaks version {version}" if version else "states no version"
        fix = ": this peer needs a newer gadget-svm" if version > m.VERSION else ""
        raise MalformedError("version", f"the other peer {says} of the protocol, this one version {m.VERSION}{fix}")


def check_parts(parts: Sequence[Any], name: str, limits: Limits, least: int = 0, twice: bool = False) -> None:
    """So many parts at most, each of them good. No two are about one site, unless they may say so ``twice``."""
    most, _ = limits.repeated[name]
    if not least <= len(parts) <= most:
        raise MalformedError("members", f"{len(parts)} {name} in one message, allowed {least} to {most}")
    for part in parts:
        check(part, limits)
    if not twice and len({part.name for part in parts}) < len(parts):
        raise MalformedError("members", f"{name} name a site twice: it would count twice")


def check_members(members: Sequence[Any], name: str, limits: Limits) -> None:
    """A part of a view. Those that others can dial have an address."""
    check_parts(members, name, limits, twice=True)
    for member in members:
        if member.reachable and member.state < State.DEAD and not member.address:
            raise MalformedError("name", f"{member.name} is reachable, but has no address")


def _if_any(rule: Rule) -> Rule:
    """Return a rule that holds unless the value is empty."""
    return lambda value, *about: rule(value, *about) if len(value) else None


_digest = partial(check_bytes, least=bounds.DIGEST_BYTES, most=bounds.DIGEST_BYTES)
_model = partial(check_vector, of="dimension")
_any_number = partial(check_number, least=-LARGEST)
RULES: dict[str, Rule] = {
    "version": check_version, "name": check_name, "initiator": check_name, "parent": check_name,
    "address": check_address, "incarnation": partial(check_count, least=1),
    **dict.fromkeys(("receiver_incarnation", "number", "seq", "beat", "ticks", "rounds", "Push.time"), check_count),
    **dict.fromkeys(("time", "rows"), check_number),
    **dict.fromkeys(("loss", "slack", "objective"), _any_number),
    "weight": lambda value, name, limits: check_number(value, name, limits, *bounds.WEIGHTS[limits.algorithm]),
    "note": check_note,
    "text": check_text, "reason": check_text,
    "certified": partial(check_text, most=bounds.CERTIFIED_BYTES),
    "study": partial(check_text, most=bounds.STUDY_BYTES, lines=True),
    "nonce": partial(check_bytes, least=bounds.NONCE_BYTES, most=bounds.NONCE_BYTES),
    "certificate": partial(check_bytes, least=1, most=bounds.CERTIFICATE_BYTES),
    "hello": partial(check_bytes, least=1, most=bounds.HELLO_BYTES),
    "signature": partial(check_bytes, least=0, most=bounds.SIGNATURE_BYTES),
    "digest": _digest, "scale": _if_any(_digest), "frozen": _if_any(_digest),
    "vector": _model, "model": _model, "CertificateProbe.model": _if_any(_model),
    "sums": partial(check_vector, of="sums"),
    **dict.fromkeys(("bounds", "duals"), partial(check_vector, of="bounds")),
    **dict.fromkeys(("sum", "spread", "largest"), partial(check_vector, of="features")),
    "members": check_members, "entries": check_parts, "sites": partial(check_parts, least=1),
    "id": lambda id, _, limits: check(id, limits),
}  # fmt: skip
"""The rule of each field, by its name, or by "Message.name" if other messages have a different field of that name."""
WITHOUT_RULE = {"float32", "reachable", "dial_failed", "chosen", "state", "edge", "Refusal.reason"}
"""Flags, and enumerations: decoding makes no unknown value of one."""


@cache
def _rules(kind: Any) -> list[tuple[str, str]]:
    """Return the fields of a message, each with the key of its rule."""
    own = [(each.name, f"{kind.__name__}.{each.name}") for each in fields(kind)]
    return [(name, key if key in RULES else name) for name, key in own if not {name, key} & WITHOUT_RULE]


@lru_cache(maxsize=4096)
def _is_endpoint(text: str) -> bool:
    try:
        return check_endpoint(text) == text
    except ValueError:
        return False
