"""The wire format: what goes in comes out, and nothing but a sound value or ``Malformed`` comes out of any bytes."""

import contextlib
import dataclasses
import io
import math
import random
import re
import socket
import string
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("google.protobuf", reason="needs gadget-svm[peer]")

from google.protobuf import descriptor_pb2

from gadget_svm.peers import checks, envelope, wire
from gadget_svm.peers.member import Member, State
from gadget_svm.peers.messages import (
    METHODS,
    SPARE,
    Ack,
    Entry,
    Hello,
    HelloReply,
    Kept,
    Letter,
    Malformed,
    Notice,
    Reason,
    Statistics,
    Status,
    StatusReply,
    entries_per_message,
    largest_letter,
    largest_statistics,
)
from gadget_svm.peers.messages import plain as as_plain
from gadget_svm.peers.naming import check_endpoint

RUN, D = bytes(range(16)), 5
ROOT = Path(__file__).parents[2]
REASONS = set(get_args(Reason))

# What is promised of what comes out, written without a look at how it is kept.


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
    assert least <= value < 2**63


def sound_number(value):
    assert type(value) is float
    assert math.isfinite(value)
    assert abs(value) <= 1e100


def sound_text(text):
    assert isinstance(text, str)
    assert len(text.encode()) <= 1024
    assert "\n" not in text
    assert "\x1b" not in text


def sound_vector(vector, dimension=D):
    assert vector.dtype == np.float64
    assert vector.dtype.isnative
    assert vector.shape == (dimension,)
    assert vector.flags.aligned
    assert not vector.flags.writeable
    assert all(math.isfinite(x) and abs(x) <= 1e100 for x in vector.tolist())


def sound_members(members):
    assert isinstance(members, tuple)
    assert len(members) <= 32
    for m in members:
        assert type(m) is Member
        sound_name(m.name)
        if m.address or m.state not in (State.DEAD, State.LEFT):
            sound_address(m.address)
        sound_count(m.incarnation, 1)
        sound_count(m.beat)
        assert type(m.state) is State
        for value in (m.rows, m.loss, m.slack, m.objective):
            sound_number(value)
        assert m.rows >= 0


def sound_letter(letter):
    assert type(letter) is Letter
    assert letter.run == RUN
    sound_name(letter.sender)
    sound_name(letter.receiver)
    sound_count(letter.incarnation, 1)
    for value in (letter.receiver_incarnation, letter.seq, letter.time):
        sound_count(value)
    sound_number(letter.weight)
    if letter.note is not None:
        sound_number(letter.note)
    assert type(letter.wanted) is bool
    if letter.vector is not None:
        sound_vector(letter.vector)
    sound_members(letter.members)
    assert type(letter.last) is bool
    assert isinstance(letter.kept, tuple)
    assert len(letter.kept) == len({each.name for each in letter.kept}) <= 32
    for each in letter.kept:
        assert type(each) is Kept
        sound_name(each.name)
        sound_count(each.incarnation, 1)
    assert letter.vector is not None or not letter.last


def sound_ack(ack):
    assert type(ack) is Ack
    assert type(ack.status) is Status
    sound_count(ack.incarnation, 1)
    sound_count(ack.beat)
    sound_text(ack.text)
    sound_members(ack.members)


def sound_hello(hello, kind=Hello):
    assert type(hello) is kind
    sound_name(hello.name)
    sound_address(hello.address)
    sound_count(hello.incarnation, 1)
    assert type(hello.nonce) is bytes
    assert len(hello.nonce) == 32
    assert len(hello.charter.encode()) <= 65536
    assert type(hello.float32) is bool
    sound_members(hello.members)


def sound_hello_reply(reply):
    sound_hello(reply, HelloReply)
    assert type(reply.accepted) is bool
    sound_text(reply.text)
    assert type(reply.certificate) is bytes
    assert len(reply.certificate) <= 16384
    assert type(reply.signature) is bytes
    assert len(reply.signature) <= 1024


def sound_statistics(statistics):
    assert type(statistics) is Statistics
    sound_name(statistics.name)
    assert len(statistics.frozen) in (0, 32)
    assert isinstance(statistics.entries, tuple)
    assert len(statistics.entries) <= 64
    assert len({entry.name for entry in statistics.entries}) == len(statistics.entries)
    for entry in statistics.entries:
        sound_name(entry.name)
        sound_number(entry.rows)
        assert entry.rows >= 0
        for vector in (entry.sum, entry.spread, entry.largest):
            if vector is not None:
                sound_vector(vector)


def sound_notice(notice):
    assert type(notice) is Notice
    sound_name(notice.name)
    sound_count(notice.incarnation)
    sound_text(notice.text)


def sound_status_reply(reply):
    assert type(reply) is StatusReply
    assert len(reply.text.encode()) <= 4 * 2**20


# Honest messages.

names = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", fullmatch=True)
hosts = st.sampled_from(["localhost", "10.0.0.7", "[::1]", "[2001:db8::7]", "site-1.example.org", "a_b", "x" * 253])
addresses = st.builds("{}:{}".format, hosts, st.integers(1, 65535))
counts, positive = st.integers(0, 2**63 - 1), st.integers(1, 2**63 - 1)
numbers = st.floats(-1e100, 1e100)
texts = st.text(max_size=300).filter(str.isprintable)
vectors = st.lists(numbers, min_size=D, max_size=D).map(np.array)
members = st.lists(
    st.builds(Member, names, addresses, positive, counts, st.sampled_from(State), st.floats(0, 1e100), *[numbers] * 3)
    | st.builds(Member, names, st.just(""), positive, counts, st.sampled_from([State.DEAD, State.LEFT])),
    max_size=32,
).map(tuple)
kept = st.lists(st.builds(Kept, names, positive), max_size=32, unique_by=lambda each: each.name).map(tuple)
blobs = {n: st.binary(min_size=n, max_size=n) for n in (0, 32)}
greeting = (names, addresses, positive, blobs[32], st.text(max_size=200), st.booleans(), members)
entries = st.builds(Entry, names, st.floats(0, 1e100), *[st.none() | vectors] * 3)


class Kind(NamedTuple):
    values: st.SearchStrategy[Any]
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    sound: Callable[[Any], None]


KINDS = {
    "Letter": Kind(
        st.builds(
            Letter, st.just(RUN), names, positive, names, counts, counts, counts, st.none() | vectors, numbers,
            st.none() | numbers, st.booleans(), members, st.just(False), kept,
        ) | st.builds(
            Letter, st.just(RUN), names, positive, names, counts, counts, counts, vectors, numbers, st.none() | numbers,
            st.booleans(), members, st.just(True), kept,
        ),
        envelope.encode_letter,
        lambda data: envelope.decode_letter(data, RUN, D),
        sound_letter,
    ),
    "Ack": Kind(
        st.builds(Ack, st.sampled_from(Status), positive, counts, texts, members),
        envelope.encode_ack, envelope.decode_ack, sound_ack,
    ),
    "Hello": Kind(st.builds(Hello, *greeting), envelope.encode_hello, envelope.decode_hello, sound_hello),
    "HelloReply": Kind(
        st.builds(HelloReply, *greeting, st.booleans(), texts, st.binary(max_size=99), st.binary(max_size=99)),
        envelope.encode_hello_reply, envelope.decode_hello_reply, sound_hello_reply,
    ),
    "Statistics": Kind(
        st.builds(
            Statistics, names, st.lists(entries, max_size=5, unique_by=lambda entry: entry.name).map(tuple),
            blobs[0] | blobs[32],
        ),
        envelope.encode_statistics, lambda data: envelope.decode_statistics(data, D), sound_statistics,
    ),
    "Notice": Kind(
        st.builds(Notice, names, counts, texts), envelope.encode_notice, envelope.decode_notice, sound_notice
    ),
    "StatusReply": Kind(
        st.builds(StatusReply, st.text(max_size=300)),
        envelope.encode_status_reply, envelope.decode_status_reply, sound_status_reply,
    ),
}  # fmt: skip

some_member = Member("b.example", "b.example:7400", 3, 17, State.SUSPECT, 100.0, 0.5, -0.0, 0.25)
LETTER = Letter(RUN, "a", 7, "b.example", 3, 12, 40, np.array([1.0, -0.0, 1e100, -1e100, 5e-324]), 0.5, 0.25, True,
                (some_member, Member("c", "[::1]:1", 1, 0)))  # fmt: skip
GREETING = ("a", "a.example:7400", 7, bytes(32), '{"lam": 0.1}', True, (some_member,))
SAMPLES = {
    "Letter": [
        LETTER,
        dataclasses.replace(LETTER, vector=None, note=None, members=()),
        dataclasses.replace(LETTER, last=True, kept=(Kept("b", 1), Kept("c.example", 2**63 - 1))),
        dataclasses.replace(LETTER, vector=None, kept=(Kept("b", 1),), members=(Member("c", "", 1, 0, State.LEFT),)),
    ],
    "Ack": [
        Ack(Status.REFUSED, 7, 3, "no: an older incarnation", (some_member,)),
        Ack(Status.OK, 1, 0),
    ],
    "Hello": [Hello(*GREETING)],
    "HelloReply": [HelloReply(*GREETING, True, "welcome", b"PEM", b"signed")],
    "Statistics": [
        Statistics("a", (Entry("a", 10.0, np.arange(5.0)), Entry("b", 0.0, None, np.ones(5), np.ones(5))), bytes(32)),
        Statistics("a", tuple(Entry(f"n{i}", float(i)) for i in range(64))),
    ],
    "Notice": [Notice("a", 7, "going home"), Notice("operator")],
    "StatusReply": [StatusReply('{"ticks": 3}')],
}


def plain(value):
    """A message as something that compares to the last bit: -0.0 is not 0.0."""
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, np.ndarray):
        return value.tobytes()
    return struct.pack("<d", value) if isinstance(value, float) else value


# Round trips.


@pytest.mark.parametrize("name", KINDS)
def test_what_goes_in_comes_out(name):
    kind = KINDS[name]

    @settings(max_examples=60)
    @given(kind.values)
    def trip(value):
        back = kind.decode(kind.encode(value))
        kind.sound(back)
        assert plain(back) == plain(value)

    trip()
    for sample in SAMPLES[name]:
        assert plain(kind.decode(kind.encode(sample))) == plain(sample)


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=D, max_size=D))
def test_float32_comes_back_as_float64(values):
    data = envelope.encode_letter(dataclasses.replace(LETTER, vector=np.array(values)), float32=True)
    vector = envelope.decode_letter(data, RUN, D).vector
    sound_vector(vector)
    assert vector.tobytes() == np.array(values).tobytes()


def test_float32_rounds_and_halves_the_vector():
    letter = dataclasses.replace(LETTER, vector=np.full(1000, 0.1))
    short, long = envelope.encode_letter(letter, float32=True), envelope.encode_letter(letter)
    assert len(long) - len(short) == 4000
    assert set(envelope.decode_letter(short, RUN, 1000).vector) == {float(np.float32(0.1))}


def test_float32_refuses_what_it_cannot_hold():
    wide = np.array([1e39, 0, 0, 0, 0])
    with pytest.raises(Malformed, match="send float64"):
        envelope.encode_letter(dataclasses.replace(LETTER, vector=wide), float32=True)


@pytest.mark.parametrize(("float32", "code"), [(False, "<5d"), (True, "<5f")])
def test_numbers_are_little_endian_whatever_the_host(float32, code):
    values = [1.0, -2.5, 0.0, 3.0, 1e10]
    data = envelope.encode_letter(dataclasses.replace(LETTER, vector=np.array(values)), float32)
    assert data.endswith(struct.pack(code, *values))


def test_strided_vectors_travel_and_other_types_do_not():
    strided = np.arange(10.0)[::2]
    back = envelope.decode_letter(envelope.encode_letter(dataclasses.replace(LETTER, vector=strided)), RUN, D)
    assert back.vector.tolist() == [0, 2, 4, 6, 8]
    for wrong in (np.arange(5), np.ones((5, 1)), np.ones(5, dtype=">f8"), np.ones(5, dtype=np.float32)):
        with pytest.raises(Malformed, match="one row of float64"):
            envelope.encode_letter(dataclasses.replace(LETTER, vector=wrong))


def test_the_longest_honest_letter_fits():
    name, address = "a" * 63, "h" * 253 + ":65535"
    full = Member(name, address, 2**63 - 1, 2**63 - 1, State.LEFT, 1e100, 1e100, 1e100, 1e100)
    for dimension in (1, 123, 47236):
        kept = tuple(Kept(f"{i:063d}", 2**63 - 1) for i in range(32))
        letter = Letter(RUN, name, 2**63 - 1, name, 2**63 - 1, 2**63 - 1, 2**63 - 1, np.full(dimension, 1e100), 1e100,
                        1e100, True, (full,) * 32, True, kept)  # fmt: skip
        data = envelope.encode_letter(letter)
        assert len(data) <= largest_letter(dimension)
        assert plain(envelope.decode_letter(data, RUN, dimension)) == plain(letter)


@pytest.mark.parametrize("dimension", [1, 123, 47236, 1_000_000])
def test_the_longest_honest_statistics_fit(dimension):
    count = min(entries_per_message(dimension), 3) if dimension > 1000 else entries_per_message(dimension)
    vector = np.full(dimension, 1e100)
    entries = tuple(Entry(f"{i:063d}", 1e100, vector, vector, vector) for i in range(count))
    data = envelope.encode_statistics(Statistics("a" * 63, entries, bytes(32)))
    assert len(data) <= largest_statistics(dimension) * count / entries_per_message(dimension) + SPARE
    assert len(envelope.decode_statistics(data, dimension).entries) == count


def test_more_entries_than_fit_are_refused_at_both_ends():
    vector = np.ones(200_000)
    assert entries_per_message(200_000) == 3
    entries = tuple(Entry(f"n{i}", 1.0, vector) for i in range(4))
    with pytest.raises(Malformed, match="4 entries in one message, allowed 3"):
        envelope.encode_statistics(Statistics("a", entries))
    bare = envelope.encode_statistics(Statistics("a", tuple(Entry(f"n{i}", 1.0) for i in range(4))))
    assert len(envelope.decode_statistics(bare, D).entries) == 4
    with pytest.raises(Malformed, match="4 entries in one message, allowed 3"):
        envelope.decode_statistics(bare, 200_000)


@given(st.text(max_size=3000))
def test_any_text_can_be_made_plain(text):
    sound_text(as_plain(text))
    envelope.encode_notice(Notice("a", 1, as_plain(text)))


@given(
    st.from_regex(r"[A-Za-z0-9_.:\[\]-]{1,12}:[0-9]{1,5}", fullmatch=True)
    | st.ip_addresses(v=6).map("[{}]:7400".format)
    | addresses
)
def test_every_address_a_configuration_may_name_can_travel(text):
    try:
        address = check_endpoint(text)
    except ValueError:
        return
    assert envelope.decode_hello(envelope.encode_hello(Hello("a", address, 1, bytes(32), ""))).address == address


# What is refused, and with which word.

NAN, INF = math.nan, math.inf
WRONG = [
    ("Letter", "name", {"sender": ""}),
    ("Letter", "name", {"sender": "A"}),
    ("Letter", "name", {"receiver": "a" * 64}),
    ("Letter", "name", {"receiver": "a\n"}),
    ("Letter", "name", {"sender": "-a"}),
    ("Letter", "run", {"run": RUN[:15]}),
    ("Letter", "sequence", {"seq": -1}),
    ("Letter", "sequence", {"seq": 2**63}),
    ("Letter", "sequence", {"time": -1}),
    ("Letter", "sequence", {"incarnation": 0}),
    ("Letter", "not-finite", {"weight": NAN}),
    ("Letter", "not-finite", {"weight": 1.1e100}),
    ("Letter", "not-finite", {"note": -INF}),
    *[
        ("Letter", "not-finite", {"vector": np.array([0, 0, x, 0, 0])})
        for x in (NAN, -NAN, INF, -INF, 1.1e100, -1.1e100)
    ],
    ("Letter", "members", {"members": (some_member,) * 33}),
    ("Letter", "members", {"members": (dataclasses.replace(some_member, state=4),)}),
    ("Letter", "members", {"members": (dataclasses.replace(some_member, rows=-1.0),)}),
    ("Letter", "name", {"members": (dataclasses.replace(some_member, name="B"),)}),
    ("Letter", "name", {"members": (dataclasses.replace(some_member, address="a", state=State.LEFT),)}),
    *[
        ("Letter", "name", {"members": (dataclasses.replace(some_member, address=address),)})
        for address in (
            "",
            "a",
            "a:",
            "a:0",
            "a:65536",
            "a:01",
            ":1",
            "a b:1",
            "[:::1]:1",
            "[::1]",
            "a:1\n",
            "x" * 254 + ":1",
        )
    ],
    ("Letter", "sequence", {"members": (dataclasses.replace(some_member, incarnation=0),)}),
    ("Letter", "sequence", {"members": (dataclasses.replace(some_member, beat=-1),)}),
    *[
        ("Letter", "not-finite", {"members": (dataclasses.replace(some_member, **{field: NAN}),)})
        for field in ("rows", "loss", "slack", "objective")
    ],
    ("Ack", "garbage", {"text": "two\nlines"}),
    ("Ack", "garbage", {"text": "\x1b[2J"}),
    ("Ack", "too-large", {"text": "é" * 513}),
    ("Ack", "sequence", {"beat": 2**63}),
    ("Ack", "members", {"members": (some_member,) * 33}),
    ("Hello", "garbage", {"nonce": bytes(31)}),
    ("Hello", "too-large", {"nonce": bytes(33)}),
    ("Hello", "too-large", {"charter": "x" * 65537}),
    ("Hello", "garbage", {"charter": "\ud800"}),
    ("Hello", "name", {"address": "nowhere"}),
    ("HelloReply", "too-large", {"certificate": bytes(16385)}),
    ("HelloReply", "too-large", {"signature": bytes(1025)}),
    ("HelloReply", "too-large", {"text": "x" * 1025}),
    ("Statistics", "garbage", {"frozen": bytes(31)}),
    ("Statistics", "too-large", {"frozen": bytes(33)}),
    ("Statistics", "members", {"entries": (Entry("a", 1.0), Entry("a", 1.0))}),
    ("Statistics", "members", {"entries": (Entry("a", -1.0),)}),
    ("Statistics", "members", {"entries": tuple(Entry(f"n{i}", 1.0) for i in range(65))}),
    ("Statistics", "not-finite", {"entries": (Entry("a", INF),)}),
    ("Statistics", "not-finite", {"entries": (Entry("a", 1.0, None, np.full(5, NAN)),)}),
    ("Statistics", "dimension", {"entries": (Entry("a", 1.0, np.ones(5), np.ones(4)),)}),
    ("Notice", "name", {"name": "a."}),
    ("Notice", "sequence", {"incarnation": -1}),
    ("Letter", "name", {"kept": (Kept("b", 1), Kept("B", 1))}),
    ("Letter", "sequence", {"kept": (Kept("b", 0),)}),
    ("Letter", "members", {"last": True, "kept": (Kept("b", 1), Kept("b", 2))}),
    ("Letter", "members", {"last": True, "kept": tuple(Kept(f"n{i}", 1) for i in range(33))}),
    ("Letter", "garbage", {"last": True, "vector": None}),
    ("StatusReply", "too-large", {"text": "x" * (4 * 2**20 + 1)}),
]


LABELS = [f"{name}-{reason}-{next(iter(changes))}" for name, reason, changes in WRONG]


@pytest.mark.parametrize(("name", "reason", "changes"), WRONG, ids=LABELS)
def test_wrong_values_are_refused_at_both_ends(name, reason, changes, monkeypatch):
    kind, bad = KINDS[name], dataclasses.replace(SAMPLES[name][0], **changes)
    with pytest.raises(Malformed) as refused:
        kind.encode(bad)
    assert refused.value.reason == reason
    with monkeypatch.context() as m:  # a dishonest peer does not check
        for check in CHECKS:
            m.setattr(checks, check, lambda *_: None)
        try:
            data = kind.encode(bad)
        except ValueError:
            return  # protobuf itself cannot say it: a negative count, half a sign
    with pytest.raises(Malformed) as refused:
        kind.decode(data)
    assert refused.value.reason == reason
    assert len(str(refused.value)) < 300


CHECKS = [name for name in vars(checks) if name.startswith("check_")]


def test_a_letter_of_another_run_or_dimension():
    data = envelope.encode_letter(LETTER)
    with pytest.raises(Malformed, match="here runs ff") as refused:
        envelope.decode_letter(data, b"\xff" * 16, D)
    assert refused.value.reason == "run"
    for dimension in (4, 6, 10):
        with pytest.raises(Malformed, match=f"a vector of 40 bytes, expected {dimension} numbers of 8") as refused:
            envelope.decode_letter(data, RUN, dimension)
        assert refused.value.reason == "dimension"
    short = envelope.encode_letter(dataclasses.replace(LETTER, vector=np.ones(10)), float32=True)
    with pytest.raises(Malformed, match="a vector of 40 bytes, expected 5 numbers of 4"):
        envelope.decode_letter(short, RUN, D)


def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, kind, content):
    """One field on the wire: a varint (0), eight bytes (1), a length and bytes (2), four bytes (5)."""
    tag = varint(number << 3 | kind)
    return tag + (varint(content) if kind == 0 else varint(len(content)) + content if kind == 2 else content)


@pytest.mark.parametrize("name", KINDS)
def test_a_higher_version_is_refused_in_words(name):
    kind = KINDS[name]
    data = kind.encode(SAMPLES[name][0])
    with pytest.raises(Malformed, match=r"speaks version 2 .* this one version 1: this peer needs a newer") as refused:
        kind.decode(data + field(1, 0, 2))
    assert refused.value.reason == "version"
    with pytest.raises(Malformed, match="says no version") as refused:
        kind.decode(b"")
    assert refused.value.reason == "version"


@pytest.mark.parametrize("name", KINDS)
def test_unknown_fields_are_ignored(name):
    kind, sample = KINDS[name], SAMPLES[name][0]
    later = field(99, 2, b"later") + field(50, 0, 2**64 - 1) + field(51, 1, bytes(8)) + field(52, 5, bytes(4))
    data = kind.encode(sample)
    assert plain(kind.decode(data + later)) == plain(kind.decode(later + data)) == plain(sample)


def test_unknown_fields_of_a_member_are_ignored():
    inner = field(1, 2, b"m") + field(2, 2, b"m:1") + field(3, 0, 1) + field(40, 2, b"later")
    ack = field(1, 0, 1) + field(3, 0, 5) + field(6, 2, inner)
    assert envelope.decode_ack(ack).members == (Member("m", "m:1", 1, 0),)


def test_fields_may_come_in_any_order_but_only_one_vector():
    data = envelope.encode_letter(dataclasses.replace(LETTER, vector=None))
    values = struct.pack("<5d", 1, 2, 3, 4, 5)
    for letter in (data + field(13, 2, values), field(13, 2, values) + data):
        assert envelope.decode_letter(letter, RUN, D).vector.tolist() == [1, 2, 3, 4, 5]
    for more in (field(13, 2, values), field(14, 2, struct.pack("<5f", *range(5)))):
        with pytest.raises(Malformed, match="one vector or none"):
            envelope.decode_letter(data + field(13, 2, values) + more, RUN, D)


def test_a_status_nobody_knows():
    with pytest.raises(Malformed, match="no status 8"):
        envelope.decode_ack(field(1, 0, 1) + field(2, 0, 8) + field(3, 0, 1))


@pytest.mark.parametrize(
    ("name", "bomb", "reason"),
    [
        ("Letter", field(12, 2, b"") * 33, "members"),
        ("Letter", field(12, 2, b"") * 5000, "too-large"),
        ("Letter", field(99, 0, 0) * 200, "too-large"),
        ("Letter", field(12, 2, bytes(513)), "members"),
        ("Letter", bytes(largest_letter(D) + 1), "too-large"),
        ("Letter", b"\x0b" * 90, "garbage"),  # groups in groups
        ("Letter", b"\x6a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "garbage"),  # a length beyond everything
        ("Letter", b"\x6a" + b"\xff" * 20, "garbage"),
        ("Ack", field(6, 2, b"") * 40, "members"),
        ("Hello", field(8, 2, b"") * 30000, "too-large"),
        ("Statistics", field(4, 2, b"") * 65, "members"),
        ("Statistics", field(4, 2, field(9, 0, 0) * 500), "too-large"),
        ("StatusReply", field(3, 0, 0) * 100_000, "too-large"),
        ("Notice", bytes(6000), "too-large"),
        ("Letter", field(16, 2, b"") * 200, "too-large"),
    ],
)
def test_a_bomb_never_reaches_protobuf(name, bomb, reason, monkeypatch):
    def parse(*_):
        raise AssertionError("protobuf was given a bomb")

    monkeypatch.setattr(wire, "parse", parse)
    with pytest.raises(Malformed) as refused:
        KINDS[name].decode(bomb)
    assert refused.value.reason == reason


@given(st.lists(st.floats() | st.sampled_from([1e100, -1e100, math.nextafter(1e100, 2e100)]), max_size=9))
def test_numbers_are_bounded_by_their_bits(values):
    good = all(abs(x) <= 1e100 for x in values)
    assert checks.within(np.array(values, dtype=float), checks.BOUND) is good


# Anything at all: nothing but a sound value or Malformed comes out.

EDGES = [0, 1, 2, 3, 7, 8, 32, 127, 128, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
DOUBLES = [0.0, -0.0, 1.0, -1.0, 1e100, -1e100, 1.1e100, 1e308, 5e-324, NAN, INF, -INF]
STRINGS = [b"", b"a", b"a.b-c", b"-a", b"A", b"a" * 63, b"a" * 64, b"\xff\xfe", b"a\n", "é".encode(), b"\x00", b"x:1",
           b"x:0", b"x:99999", b"[::1]:80", b"[:1]:80", b"x" * 300, b"y" * 2000, RUN, bytes(32),
           b"\xed\xa0\x80"]  # fmt: skip
TYPES = descriptor_pb2.FieldDescriptorProto
SCHEMA = {m.name: list(m.field) for m in wire.file_descriptor().message_type}


def wild_vector(rng):
    if rng.random() < 0.2:
        return rng.randbytes(rng.randrange(0, 60))
    return struct.pack(f"<{D}d", *(rng.choice(DOUBLES) if rng.random() < 0.3 else rng.gauss(0, 1) for _ in range(D)))


def wild_field(rng, f, sane):
    """A field of the schema with a likely or an unlikely value; sometimes of another type altogether."""
    likely = rng.random() < sane
    if rng.random() < 0.01:
        return field(
            f.number, *rng.choice([(0, rng.choice(EDGES)), (1, rng.randbytes(8)), (2, b"x"), (5, rng.randbytes(4))])
        )
    if f.type == TYPES.TYPE_MESSAGE:
        count = rng.choice([0, 1, 2]) if likely else rng.choice([5, 33])
        inner = f.type_name.rsplit(".", 1)[1]
        return b"".join(field(f.number, 2, wild(rng, inner, sane)) for _ in range(count))
    if f.type == TYPES.TYPE_STRING:
        usual = {"address": b"h:80", "name": b"n%d" % rng.randrange(99), "charter": b"{}", "text": b"hm"}
        return field(f.number, 2, usual.get(f.name, b"peer") if likely else rng.choice(STRINGS))
    if f.type == TYPES.TYPE_BYTES:
        usual = {"run": RUN, "nonce": bytes(32), "frozen": rng.choice([b"", bytes(32)]), "vector32": rng.randbytes(20)}
        content = wild_vector(rng) if f.name in ("vector", "sum", "spread", "largest") else usual.get(f.name, b"")
        return field(f.number, 2, content if likely else rng.choice(STRINGS))
    if f.type == TYPES.TYPE_DOUBLE:
        return field(f.number, 1, struct.pack("<d", 2.5 if likely else rng.choice(DOUBLES)))
    return field(f.number, 0, 1 if likely else rng.choice(EDGES))


def wild(rng, name, sane=None):
    """Structurally valid protobuf, with fields missing, doubled, shuffled and wild."""
    sane = rng.choice([0.5, 0.9, 0.99, 1.0]) if sane is None else sane
    fields = [f for f in SCHEMA[name] if rng.random() < sane + 0.005]
    fields = [f for f in fields if f.name != "vector32" or rng.random() < 0.1]
    if rng.random() < 0.1 and fields:
        fields += rng.sample(fields, 1)
        rng.shuffle(fields)
    return b"".join(wild_field(rng, f, sane) for f in fields)


def damaged(rng, data):
    """An honest message with a few bytes flipped, put in, taken out, cut off, or spliced with itself."""
    out = bytearray(data)
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        at = rng.randrange(len(out) + 1)
        match rng.randrange(6):
            case 0 if at < len(out):
                out[at] ^= 1 << rng.randrange(8)
            case 1 if at < len(out):
                out[at] = rng.choice((0, 1, 127, 128, 255))
            case 2:
                out[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 3:
                del out[at : at + rng.randrange(1, 9)]
            case 4:
                del out[at:]
            case _:
                out[at:at] = out[rng.randrange(len(out) + 1) :][:99]
    return bytes(out)


def fuzz(name, cases, seed):
    """So many cases through one decoder; what came of them. Fails if anything but a sound value or Malformed does."""
    rng, kind, outcome = random.Random(f"{name}{seed}"), KINDS[name], Counter()
    honest = [kind.encode(sample) for sample in SAMPLES[name]]
    if name == "Letter":
        honest.append(envelope.encode_letter(dataclasses.replace(LETTER, vector=np.arange(5.0)), float32=True))
    for _ in range(cases):
        draw = rng.random()
        if draw < 0.15:
            data = rng.randbytes(rng.randrange(0, 120))
        else:
            data = damaged(rng, rng.choice(honest)) if draw < 0.6 else wild(rng, name)
        try:
            value = kind.decode(data)
        except Malformed as refused:
            outcome[refused.reason if len(str(refused)) < 300 else "a sentence without end"] += 1
        else:
            kind.sound(value)
            outcome["sound"] += 1
    assert set(outcome) <= REASONS | {"sound"}
    return outcome


FUZZ = dict.fromkeys(KINDS, 15_000) | {"Letter": 80_000}


def test_the_cases_are_many():
    assert sum(FUZZ.values()) >= 100_000


@pytest.mark.parametrize("name", FUZZ)
def test_no_bytes_break_a_decoder(name):
    outcome = fuzz(name, FUZZ[name], 0)
    assert sum(outcome.values()) == FUZZ[name]
    assert outcome["sound"] > FUZZ[name] / 50, "too few come through to say anything of the promises"
    expected = {
        "Letter": REASONS,
        "Ack": {"garbage", "version", "sequence", "members", "name", "not-finite"},
        "Statistics": {"garbage", "version", "name", "dimension", "not-finite", "members"},
        "Notice": {"garbage", "version", "name", "sequence"},
        "StatusReply": {"garbage", "version"},
    }
    missing = expected.get(name, {"garbage", "version", "name", "sequence", "members", "not-finite"}) - set(outcome)
    assert missing <= {"too-large"}, f"the fuzzer never provoked {missing}"


@pytest.mark.parametrize(
    ("name", "check"),
    [
        *[("Letter", f"check_{what}") for what in ("name", "address", "count", "number", "vector", "members")],
        ("Ack", "check_text"),
        ("Hello", "check_bytes"),
        ("HelloReply", "check_hello"),
        ("Statistics", "check_statistics"),
        ("Notice", "check_notice"),
    ],
)
def test_the_fuzzer_notices_a_missing_check(name, check, monkeypatch):
    monkeypatch.setattr(checks, check, lambda *_: None)
    with pytest.raises(AssertionError):
        fuzz(name, 5000, 1)


@pytest.mark.parametrize(("name", "reason", "changes"), WRONG, ids=LABELS)
def test_the_promises_can_fail(name, reason, changes):
    """Every wrong value from above, as if a decoder had let it through."""
    assert reason in REASONS
    sound, wrong = (frozen(dataclasses.replace(SAMPLES[name][0], **change)) for change in ({}, changes))
    KINDS[name].sound(sound)
    with pytest.raises((AssertionError, UnicodeEncodeError)):  # the second: half a sign has no bytes
        KINDS[name].sound(wrong)


def test_the_promises_know_a_vector_that_can_be_written():
    with pytest.raises(AssertionError):
        sound_letter(dataclasses.replace(LETTER, vector=np.ones(5)))


def frozen(value):
    """With vectors that cannot be written, as a decoder makes them."""
    if isinstance(value, Statistics):
        return dataclasses.replace(value, entries=tuple(frozen(entry) for entry in value.entries))
    changes = {}
    for each in dataclasses.fields(value):
        if isinstance(vector := getattr(value, each.name), np.ndarray):
            changes[each.name] = np.frombuffer(vector.tobytes())
    return dataclasses.replace(value, **changes)


@pytest.mark.parametrize("name", KINDS)
def test_no_bytes_break_a_decoder_and_small_ones_are_shown(name):
    """The same, by hypothesis: slower, but a failure shrinks to a few bytes."""
    kind = KINDS[name]
    edits = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=4)), max_size=4)

    @settings(max_examples=150)
    @given(st.binary(max_size=60) | st.sampled_from([kind.encode(s) for s in SAMPLES[name]]), edits)
    def check(data, changes):
        for at, cut, insert in changes:
            data = data[:at] + insert + data[at + cut :]
        with contextlib.suppress(Malformed):
            kind.sound(kind.decode(data))

    check()


# The same in other languages, and in the documentation.


def test_wire_proto_says_the_same(tmp_path):
    protoc = pytest.importorskip("grpc_tools.protoc", reason="needs grpcio-tools")
    folder = ROOT / "src" / "gadget_svm" / "peers"
    assert protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={tmp_path / 'set'}", "wire.proto"]) == 0
    [file] = descriptor_pb2.FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file
    for message in file.message_type:
        for each in message.field:
            each.ClearField("json_name")
    assert file == wire.file_descriptor()


def test_our_letters_are_what_protobuf_itself_would_write():
    data = envelope.encode_letter(LETTER)
    message = wire.KINDS.Letter.FromString(data)
    assert message.vector == LETTER.vector.tobytes()
    assert message.SerializeToString() == data


DOCS = ROOT / "docs" / "reference" / "wire-format.md"


def test_the_example_of_the_documentation():
    [(code, shown)] = re.findall(r"```python\n(.*?)```\n.*?```text\n(.*?)```", DOCS.read_text(), re.DOTALL)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code, {})
    assert said.getvalue() == shown


def test_the_documentation_names_everything():
    text = DOCS.read_text()
    for name, fields in SCHEMA.items():
        part = re.search(rf"^### {name}\n(.*?)(?=^##)", text, re.DOTALL | re.MULTILINE)
        assert part, name
        said = re.findall(r"^\| (\d+) \| `(\w+)` \|", part[1], re.MULTILINE)
        assert said == [(str(f.number), f.name) for f in fields], name
    for method, (asks, answers) in METHODS.items():
        assert f"| `{method}` | `{asks}` | `{answers}` |" in text
    for status in Status:
        assert f"| {status.value} | `{status.name}` |" in text
    for reason in REASONS:
        assert f"| `{reason}` |" in text
