"""Messages for tests of the wire format: strategies, samples, and what is promised of every decoded message.

The promises are written without a look at how `validation` keeps them.
"""

import dataclasses
import math
import socket
import string
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from gadget_svm.peers.membership.member import Member, State
from gadget_svm.peers.wire import messages as m
from gadget_svm.peers.wire.limits import Limits

D, FEATURES, OUTPUTS = 6, 2, 2
PDMM = Limits("pdmm", FEATURES, OUTPUTS, D, sites=40)
GADGET = dataclasses.replace(PDMM, algorithm="gadget")

# Promises


def sound_name(name):
    assert isinstance(name, str)
    assert 1 <= len(name) <= 63
    assert set(name) <= set(string.ascii_lowercase + string.digits + ".-")
    assert name[0] not in ".-"
    assert name[-1] not in ".-"


def is_ipv6(host):
    try:
        return len(socket.inet_pton(socket.AF_INET6, host)) == 16
    except OSError:
        return False


def sound_address(address):
    assert isinstance(address, str)
    host, colon, port = address.rpartition(":")
    assert colon
    assert port.isascii()
    assert port.isdigit()
    assert port == str(int(port))
    assert 1 <= int(port) <= 65535
    if host.startswith("["):
        assert host.endswith("]")
        assert len(host) <= 47
        assert is_ipv6(host[1:-1])
    else:
        assert 1 <= len(host) <= 253
        assert set(host) <= set(string.ascii_letters + string.digits + ".-_")
        assert host[0] not in ".-"
        assert host[-1] not in ".-"


def sound_count(value, least=0):
    assert type(value) is int
    assert least <= value < 2**62


def sound_number(value, least=-1e100):
    assert type(value) is float
    assert math.isfinite(value)
    assert least <= value <= 1e100


def sound_text(text, most=1024):
    assert isinstance(text, str)
    assert len(text.encode()) <= most
    assert "\n" not in text
    assert "\x1b" not in text


def sound_vector(vector, length=D):
    assert vector.dtype == np.float64
    assert vector.dtype.isnative
    assert vector.shape == (length,)
    assert vector.flags.aligned
    assert not vector.flags.writeable
    assert all(math.isfinite(x) and abs(x) <= 1e100 for x in vector.tolist())


def sound_digest(digest):
    assert type(digest) is bytes
    assert len(digest) in (0, 32)


def sound_members(members):
    assert isinstance(members, tuple)
    assert len(members) <= 32
    for each in members:
        assert type(each) is Member
        sound_name(each.name)
        if each.address or (each.reachable and each.state not in (State.DEAD, State.LEFT)):
            sound_address(each.address)
        sound_count(each.incarnation, 1)
        sound_count(each.beat)
        assert type(each.state) is State
        sound_number(each.rows, 0.0)
        for value in (each.loss, each.slack, each.objective):
            sound_number(value)
        assert type(each.reachable) is bool
        sound_text(each.certified, 128)


def sound_sites(sites):
    assert isinstance(sites, tuple)
    assert 1 <= len(sites) <= 40
    assert len({site.name for site in sites}) == len(sites)
    for site in sites:
        assert type(site) is m.CoveredSite
        sound_name(site.name)
        sound_count(site.incarnation, 1)
        sound_number(site.rows, 0.0)


def sound_id(value):
    assert type(value) is m.CertificateId
    sound_count(value.number)
    sound_name(value.initiator)
    sound_count(value.incarnation, 1)


def sound_challenge(message):
    assert type(message.nonce) is type(message.certificate) is bytes
    assert len(message.nonce) == 32
    assert 1 <= len(message.certificate) <= 16384


def sound_signed_hello(message):
    assert type(message.hello) is type(message.signature) is bytes
    assert 1 <= len(message.hello) <= 4 * 2**20
    assert len(message.signature) <= 1024


def sound_hello(message):
    sound_name(message.name)
    sound_count(message.incarnation, 1)
    assert len(message.study.encode()) <= 2 * 2**20
    assert type(message.digest) is bytes
    assert len(message.digest) == 32
    if message.address:
        sound_address(message.address)
    assert type(message.float32) is bool
    sound_members(message.members)


def sound_refusal(message):
    assert type(message.reason) is m.RefusalReason
    sound_text(message.text)
    sound_members(message.members)


def sound_heartbeat(message):
    sound_count(message.number)
    sound_count(message.incarnation, 1)
    sound_count(message.receiver_incarnation)
    assert type(message.edge) is m.EdgeState
    sound_members(message.members)
    assert type(message.dial_failed) is type(message.chosen) is bool


GADGET_WEIGHTS = (1e-15, 1e18)


def sound_push(message, weights=(1e-100, 1e100)):
    sound_count(message.incarnation, 1)
    for value in (message.receiver_incarnation, message.seq, message.time):
        sound_count(value)
    sound_vector(message.vector)
    assert type(message.weight) is float
    assert weights[0] <= message.weight <= weights[1]
    if weights == GADGET_WEIGHTS:
        assert message.note is None
    else:
        sound_number(message.note, 0.0)
    sound_digest(message.scale)
    assert type(message.float32) is bool


def sound_acknowledgement(message):
    sound_count(message.seq)
    sound_count(message.incarnation, 1)


def sound_statistics(message):
    assert isinstance(message.entries, tuple)
    assert len(message.entries) <= 64
    assert len({entry.name for entry in message.entries}) == len(message.entries)
    for entry in message.entries:
        sound_name(entry.name)
        sound_number(entry.rows, 0.0)
        for vector in (entry.sum, entry.spread, entry.largest):
            if vector is not None:
                sound_vector(vector, FEATURES)
    sound_digest(message.frozen)


def sound_probe(message):
    sound_id(message.id)
    sound_number(message.time, 0.0)
    sound_digest(message.scale)
    sound_vector(message.model, D if len(message.model) else 0)
    sound_name(message.parent)


def sound_sums(message):
    sound_id(message.id)
    sound_vector(message.sums, D + 4 * OUTPUTS + 3)
    sound_sites(message.sites)


def sound_certified(message):
    sound_id(message.id)
    sound_number(message.time, 0.0)
    sound_digest(message.scale)
    sound_vector(message.model)
    sound_vector(message.bounds, OUTPUTS)
    sound_vector(message.duals, OUTPUTS)
    sound_sites(message.sites)
    sound_count(message.ticks)


def sound_leave(message):
    sound_count(message.incarnation, 1)
    sound_text(message.reason)


# Honest messages

names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", fullmatch=True)
hosts = st.sampled_from(["localhost", "10.0.0.7", "[::1]", "[2001:db8::7]", "site-1.example.org", "a_b", "x" * 63])
addresses = st.builds("{}:{}".format, hosts, st.integers(1, 65535))
counts, positive = st.integers(0, 2**62 - 1), st.integers(1, 2**62 - 1)
numbers, masses = st.floats(-1e100, 1e100), st.floats(0.0, 1e100)
texts, flags = st.text(max_size=300).filter(str.isprintable), st.booleans()
digests = st.just(b"") | st.binary(min_size=32, max_size=32)


def vectors(length=D):
    return st.lists(numbers, min_size=length, max_size=length).map(np.array)


members = st.lists(
    st.builds(
        Member, names, addresses, positive, counts, st.sampled_from(State), masses, *[numbers] * 3, flags,
        st.text("0123456789abcdef", max_size=128),
    )
    | st.builds(Member, names, st.just(""), positive, counts, st.sampled_from([State.DEAD, State.LEFT]))
    | st.builds(Member, names, st.just(""), positive, counts, st.sampled_from(State), reachable=st.just(False)),
    max_size=32,
).map(tuple)  # fmt: skip
ids = st.builds(m.CertificateId, counts, names, positive)
sites = st.lists(
    st.builds(m.CoveredSite, names, positive, masses), min_size=1, max_size=40, unique_by=lambda site: site.name
).map(tuple)
entries = st.builds(m.SiteStatistics, names, masses, *[st.none() | vectors(FEATURES)] * 3)


class Kind(NamedTuple):
    values: st.SearchStrategy[Any]
    sound: Callable[[Any], None]
    samples: list[Any]
    limits: Limits = PDMM


VECTOR = np.array([1.0, -0.0, 1e100, -1e100, 5e-324, 2.0])
MEMBER = Member("b.example", "b.example:7400", 3, 17, State.SUSPECT, 100.0, 0.5, -0.0, 0.25, True, "4-b.example-3")
OUTBOUND = Member("c", "", 1, 0, reachable=False)
PUSH = m.Push(7, 3, 12, 40, VECTOR, 0.5, 0.25, bytes(range(32)))
ID = m.CertificateId(4, "b.example", 3)
SITES = (m.CoveredSite("a", 7, 10.0), m.CoveredSite("b.example", 3, 0.5))
pushes = (positive, counts, counts, counts, vectors())
KINDS = {
    "Challenge": Kind(
        st.builds(m.Challenge, st.binary(min_size=32, max_size=32), st.binary(min_size=1, max_size=99)),
        sound_challenge, [m.Challenge(bytes(range(32)), b"PEM")],
    ),
    "SignedHello": Kind(
        st.builds(m.SignedHello, st.binary(min_size=1, max_size=99), st.binary(max_size=99)),
        sound_signed_hello, [m.SignedHello(b"hello", b"signature"), m.SignedHello(b"hello", b"")],
    ),
    "Hello": Kind(
        st.builds(
            m.Hello, names, positive, st.text(max_size=200), st.binary(min_size=32, max_size=32),
            st.just("") | addresses, flags, members,
        ),
        sound_hello, [m.Hello("a", 7, '{"lam": 0.1}', bytes(32), "a.example:7400", True, (MEMBER, OUTBOUND))],
    ),
    "Refusal": Kind(
        st.builds(m.Refusal, st.sampled_from(m.RefusalReason), texts, members),
        sound_refusal, [m.Refusal(m.RefusalReason.LEAVING, "going", (MEMBER,)), m.Refusal(m.RefusalReason.STUDY, "")],
    ),
    "Heartbeat": Kind(
        st.builds(m.Heartbeat, counts, positive, counts, st.sampled_from(m.EdgeState), members, flags, flags),
        sound_heartbeat, [m.Heartbeat(1, 7, 3, m.EdgeState.UP, (MEMBER, OUTBOUND), False, True)],
    ),
    "Push": Kind(
        st.builds(m.Push, *pushes, st.floats(1e-100, 1e100), masses, digests),
        sound_push, [PUSH, dataclasses.replace(PUSH, scale=b"", note=0.0)],
    ),
    "Push of gadget": Kind(
        st.builds(m.Push, *pushes, st.floats(*GADGET_WEIGHTS), st.none(), digests),
        lambda push: sound_push(push, GADGET_WEIGHTS), [dataclasses.replace(PUSH, note=None)], GADGET,
    ),
    "Acknowledgement": Kind(
        st.builds(m.Acknowledgement, counts, positive), sound_acknowledgement, [m.Acknowledgement(12, 7)]
    ),
    "Statistics": Kind(
        st.builds(
            m.Statistics, st.lists(entries, max_size=5, unique_by=lambda entry: entry.name).map(tuple), digests
        ),
        sound_statistics,
        [
            m.Statistics(
                (m.SiteStatistics("a", 9.0, np.arange(2.0)), m.SiteStatistics("b", 0.0, None, np.ones(2), np.ones(2))),
                bytes(32),
            ),
            m.Statistics(tuple(m.SiteStatistics(f"n{i}", float(i)) for i in range(64))),
        ],
    ),
    "CertificateProbe": Kind(
        st.builds(m.CertificateProbe, ids, masses, digests, vectors() | vectors(0), names),
        sound_probe,
        [m.CertificateProbe(ID, 1.8e9, bytes(32), VECTOR, "a"), m.CertificateProbe(ID, 1.8e9, b"", np.empty(0), "a")],
    ),
    "CertificateSums": Kind(
        st.builds(m.CertificateSums, ids, vectors(PDMM.sums), sites),
        sound_sums, [m.CertificateSums(ID, np.arange(float(PDMM.sums)), SITES)],
    ),
    "Certified": Kind(
        st.builds(
            m.Certified, ids, masses, digests, vectors(), vectors(OUTPUTS), vectors(OUTPUTS), sites, counts
        ),
        sound_certified,
        [m.Certified(ID, 1.8e9, bytes(32), VECTOR, np.array([0.1, -1e-18]), np.array([1.0, 2.0]), SITES, 100)],
    ),
    "Leave": Kind(st.builds(m.Leave, positive, texts), sound_leave, [m.Leave(7, "maintenance"), m.Leave(1)]),
}  # fmt: skip


def plain(value):
    """Return a message as something that compares to the last bit: -0.0 is not 0.0."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.astype(np.float64).tobytes()
    return struct.pack("<d", value) if isinstance(value, float) else value


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, kind, content):
    """Return a field as bytes: a varint (0), eight bytes (1), a length and bytes (2), four bytes (5)."""
    tag = varint(number << 3 | kind)
    return tag + (varint(content) if kind == 0 else varint(len(content)) + content if kind == 2 else content)
