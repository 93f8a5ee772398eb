"""Frames: what goes in comes out, and only sound values or `MalformedError` come out of any bytes."""

import contextlib
import dataclasses
import math
import random
import struct
from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("google.protobuf", reason="needs gadget-svm[peer]")

from google.protobuf import descriptor_pb2

from gadget_svm.kernels.certificate import widths
from gadget_svm.peers.membership.member import Member, State
from gadget_svm.peers.names import check_endpoint
from gadget_svm.peers.wire import codec, fields, validation
from gadget_svm.peers.wire import messages as m
from gadget_svm.peers.wire import peer_pb2 as pb
from gadget_svm.peers.wire.limits import STATUS_BYTES, Limits, MalformedError, Reason, printable
from support.wire_messages import (
    KINDS,
    MEMBER,
    OUTPUTS,
    PDMM,
    PUSH,
    SITES,
    VECTOR,
    D,
    addresses,
    field,
    plain,
    sound_text,
    sound_vector,
    varint,
)

REASONS = set(get_args(Reason))
HELLO = KINDS["Hello"].samples[0]


def encode(kind, message):
    """Return a message's bytes: a hello on its own, all others as a frame."""
    if kind == "Hello":
        return codec.encode_hello(message, PDMM)
    return codec.encode(message, KINDS[kind].limits)


def decode(kind, data):
    if kind == "Hello":
        return codec.decode_hello(data, PDMM)
    return codec.decode(data, KINDS[kind].limits)


def frame(kind, content):
    """Return the bytes of a message as decode takes them."""
    kind = kind.split()[0]
    if kind == "Hello":
        return content
    number = next(f.number for f in pb.Frame.DESCRIPTOR.fields if f.message_type.name == kind)
    return field(number, 2, content)


def content(kind, message):
    """Return the bytes of a message without its frame."""
    data = encode(kind, message)
    if kind == "Hello":
        return data
    [only] = fields.walk(data, 0, len(data), 1)
    return data[only.start : only.end]


# Round trips


@pytest.mark.parametrize("kind", KINDS)
def test_what_goes_in_comes_out(kind):
    @settings(max_examples=50)
    @given(KINDS[kind].values)
    def trip(value):
        back = decode(kind, encode(kind, value))
        KINDS[kind].sound(back)
        assert plain(back) == plain(value)

    trip()
    for sample in KINDS[kind].samples:
        assert plain(decode(kind, encode(kind, sample))) == plain(sample)


def test_every_message_is_tested():
    numbers = {f.message_type.name for f in pb.Frame.DESCRIPTOR.fields}
    assert numbers | {"Hello"} == {kind.split()[0] for kind in KINDS}
    assert {kind.__name__ for kind in get_args(m.Message)} <= set(KINDS)
    for f in pb.Frame.DESCRIPTOR.fields:
        assert codec._KINDS[f.number].__name__ == f.message_type.name


def test_a_hello_in_a_frame_is_not_believed_before_its_signature_is():
    signed = codec.decode(codec.encode(HELLO, PDMM), PDMM)
    assert signed == m.SignedHello(codec.encode_hello(HELLO, PDMM), b"")
    assert codec.decode_hello(signed.hello, PDMM) == HELLO


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=D, max_size=D))
def test_float32_comes_back_as_float64(values):
    push = dataclasses.replace(PUSH, vector=np.array(values), float32=True)
    back = codec.decode(codec.encode(push, PDMM), PDMM)
    sound_vector(back.vector)
    assert plain(back) == plain(push)


def test_float32_rounds_and_halves_the_vector():
    limits = dataclasses.replace(PDMM, dimension=1000)
    push = dataclasses.replace(PUSH, vector=np.full(1000, 0.1))
    short, long = (codec.encode(dataclasses.replace(push, float32=narrow), limits) for narrow in (True, False))
    assert len(long) - len(short) == 4000
    assert set(codec.decode(short, limits).vector) == {float(np.float32(0.1))}


def test_what_float32_cannot_hold_travels_as_float64():
    wide = dataclasses.replace(PUSH, vector=np.array([1e39, 0, 0, 0, 0, 0.1]), float32=True)
    back = codec.decode(codec.encode(wide, PDMM), PDMM)
    assert back.vector.tolist() == wide.vector.tolist()
    assert not back.float32


@pytest.mark.parametrize(("float32", "code"), [(False, "<6d"), (True, "<6f")])
def test_numbers_are_little_endian_on_every_machine(float32, code):
    values = [1.0, -2.5, 0.0, 3.0, 1e10, 7.0]
    data = codec.encode(dataclasses.replace(PUSH, vector=np.array(values), float32=float32), PDMM)
    assert data.endswith(struct.pack(code, *values))


def test_strided_vectors_travel_and_other_types_do_not():
    strided = dataclasses.replace(PUSH, vector=np.arange(12.0)[::2])
    assert codec.decode(codec.encode(strided, PDMM), PDMM).vector.tolist() == [0, 2, 4, 6, 8, 10]
    for wrong in (np.arange(6), np.ones((6, 1)), np.ones(6, dtype=">f8"), np.ones(6, dtype=np.float32)):
        with pytest.raises(MalformedError, match="one row of float64"):
            codec.encode(dataclasses.replace(PUSH, vector=wrong), PDMM)


def test_a_push_is_what_protobuf_itself_would_write():
    data = codec.encode(PUSH, PDMM)
    message = pb.Frame.FromString(data)
    assert message.push.vector == VECTOR.tobytes()
    assert message.SerializeToString() == data


TOP = 2**62 - 1
NAME, ADDRESS = "a" * 63, ".".join(["h" * 63] * 3 + ["h" * 61]) + ":65535"
FULL = (Member(NAME, ADDRESS, TOP, TOP, State.LEFT, 1e100, 1e100, 1e100, 1e100, True, "x" * 128),) * 32


@pytest.mark.parametrize("dimension", [1, 123, 47236, 1_000_000])
def test_the_longest_honest_messages_fit(dimension):
    limits = Limits("pdmm", dimension, 1, dimension, sites=2000)
    vector, sums, one = (np.full(n, 1e100) for n in (dimension, limits.sums, 1))
    id, digest = m.CertificateId(TOP, NAME, TOP), bytes(32)
    sites = tuple(m.CoveredSite(f"{i:063d}", TOP, 1e100) for i in range(2000))
    entries = tuple(m.SiteStatistics(f"{i:063d}", 1e100, vector, vector, vector) for i in range(limits.entries))
    for message in (
        m.Challenge(digest, bytes(16384)), m.SignedHello(bytes(limits.sizes["Hello"]), bytes(1024)),
        m.Refusal(m.RefusalReason.LEAVING, "é" * 512, FULL),
        m.Heartbeat(TOP, TOP, TOP, m.EdgeState.UP, FULL, True, True),
        m.Push(TOP, TOP, TOP, TOP, vector, 1e15, 1e100, digest), m.Acknowledgement(TOP, TOP),
        m.Statistics(entries, digest), m.CertificateProbe(id, 1e100, digest, vector, NAME),
        m.CertificateSums(id, sums, sites), m.Certified(id, 1e100, digest, vector, one, one, sites, TOP),
        m.Leave(TOP, "é" * 512),
    ):  # fmt: skip
        data = codec.encode(message, limits)
        assert len(data) <= limits.frame_bytes
        assert plain(codec.decode(data, limits)) == plain(message)
    hello = m.Hello(NAME, TOP, "é" * 2**20, digest, ADDRESS, True, FULL)
    assert codec.decode_hello(codec.encode_hello(hello, limits), limits) == hello


def test_the_sums_of_a_certificate_have_the_length_that_the_kernel_gives_them():
    features = D // OUTPUTS
    assert PDMM.sums == widths(features, OUTPUTS)[2]


@given(st.text(max_size=3000))
def test_any_text_can_be_made_printable(text):
    sound_text(printable(text))
    codec.encode(m.Leave(1, printable(text)), PDMM)


@given(
    st.from_regex(r"[A-Za-z0-9_.:\[\]-]{1,12}:[0-9]{1,5}", fullmatch=True)
    | st.ip_addresses(v=6).map("[{}]:7400".format)
    | addresses
)
def test_every_address_that_a_configuration_may_name_can_travel(text):
    try:
        address = check_endpoint(text)
    except ValueError:
        return
    hello = dataclasses.replace(HELLO, address=address)
    assert codec.decode_hello(codec.encode_hello(hello, PDMM), PDMM).address == address


# What is refused, and with which word

NAN, INF = math.nan, math.inf


def changed(message, **changes):
    return dataclasses.replace(message, **changes)


def members(**changes):
    return {"members": (changed(MEMBER, **changes),)}


BAD_ADDRESSES = (
    "", "a", "a:", "a:0", "a:65536", "a:01", ":1", "a b:1", "[:::1]:1", "[::1]", "a:1\n", "x" * 254 + ":1"
)  # fmt: skip
WRONG = [
    ("Challenge", "garbage", {"nonce": bytes(31)}),
    ("Challenge", "too-large", {"nonce": bytes(33)}),
    ("Challenge", "garbage", {"certificate": b""}),
    ("Challenge", "too-large", {"certificate": bytes(16385)}),
    ("SignedHello", "too-large", {"signature": bytes(1025)}),
    ("SignedHello", "garbage", {"hello": b""}),
    ("Hello", "name", {"name": ""}),
    ("Hello", "name", {"address": "nowhere"}),
    ("Hello", "sequence", {"incarnation": 0}),
    ("Hello", "too-large", {"study": "x" * (2**21 + 1)}),
    ("Hello", "garbage", {"study": "\ud800"}),
    ("Hello", "garbage", {"digest": b""}),
    ("Hello", "members", {"members": (MEMBER,) * 33}),
    ("Refusal", "garbage", {"reason": 5}),
    ("Refusal", "garbage", {"text": "two\nlines"}),
    ("Refusal", "garbage", {"text": "\x1b[2J"}),
    ("Refusal", "too-large", {"text": "é" * 513}),
    ("Refusal", "members", {"members": (MEMBER,) * 33}),
    ("Heartbeat", "sequence", {"number": 2**62}),
    ("Heartbeat", "sequence", {"incarnation": 0}),
    ("Heartbeat", "sequence", {"receiver_incarnation": -1}),
    ("Heartbeat", "garbage", {"edge": 4}),
    ("Heartbeat", "members", {"members": (MEMBER,) * 33}),
    ("Heartbeat", "garbage", members(state=4)),
    ("Heartbeat", "range", members(rows=-1.0)),
    ("Heartbeat", "name", members(name="B")),
    ("Heartbeat", "name", members(address="a", state=State.LEFT)),
    ("Heartbeat", "name", members(address="a", reachable=False)),
    ("Heartbeat", "sequence", members(incarnation=0)),
    ("Heartbeat", "sequence", members(beat=-1)),
    ("Heartbeat", "too-large", members(certified="x" * 129)),
    ("Heartbeat", "garbage", members(certified="a\n")),
    *[("Heartbeat", "name", members(address=address)) for address in BAD_ADDRESSES],
    *[("Heartbeat", "not-finite", members(**{name: NAN})) for name in ("rows", "loss", "slack", "objective")],
    ("Push", "sequence", {"seq": -1}),
    ("Push", "sequence", {"seq": 2**62}),
    ("Push", "sequence", {"time": -1}),
    ("Push", "sequence", {"incarnation": 0}),
    ("Push", "not-finite", {"weight": NAN}),
    ("Push", "not-finite", {"weight": 1.1e100}),
    *[("Push", "range", {"weight": weight}) for weight in (0.0, -1.0, 1e-300, 0.9e-100)],
    ("Push", "not-finite", {"note": -INF}),
    ("Push", "range", {"note": -1e-9}),
    ("Push", "garbage", {"note": None}),
    ("Push", "garbage", {"scale": bytes(31)}),
    *[
        ("Push", "not-finite", {"vector": np.array([0, 0, x, 0, 0, 0])})
        for x in (NAN, -NAN, INF, -INF, 1.1e100, -1.1e100)
    ],
    *[("Push", "dimension", {"vector": np.ones(length)}) for length in (0, 5, 7)],
    ("Push of gadget", "garbage", {"note": 0.0}),
    *[("Push of gadget", "range", {"weight": weight}) for weight in (0.0, -1.0, 1e-300, 1e19)],
    ("Acknowledgement", "sequence", {"seq": 2**62}),
    ("Acknowledgement", "sequence", {"incarnation": 0}),
    ("Statistics", "garbage", {"frozen": bytes(31)}),
    ("Statistics", "too-large", {"frozen": bytes(33)}),
    ("Statistics", "members", {"entries": (m.SiteStatistics("a", 1.0), m.SiteStatistics("a", 1.0))}),
    ("Statistics", "range", {"entries": (m.SiteStatistics("a", -1.0),)}),
    ("Statistics", "members", {"entries": tuple(m.SiteStatistics(f"n{i}", 1.0) for i in range(65))}),
    ("Statistics", "not-finite", {"entries": (m.SiteStatistics("a", INF),)}),
    ("Statistics", "not-finite", {"entries": (m.SiteStatistics("a", 1.0, None, np.full(2, NAN)),)}),
    ("Statistics", "dimension", {"entries": (m.SiteStatistics("a", 1.0, np.ones(2), np.ones(4)),)}),
    ("CertificateProbe", "name", {"id": m.CertificateId(1, "A", 1)}),
    ("CertificateProbe", "sequence", {"id": m.CertificateId(2**62, "a", 1)}),
    ("CertificateProbe", "sequence", {"id": m.CertificateId(1, "a", 0)}),
    ("CertificateProbe", "not-finite", {"time": INF}),
    ("CertificateProbe", "range", {"time": -1.0}),
    ("CertificateProbe", "garbage", {"scale": b"short"}),
    ("CertificateProbe", "dimension", {"model": np.ones(5)}),
    ("CertificateProbe", "not-finite", {"model": np.full(6, NAN)}),
    ("CertificateProbe", "name", {"parent": ""}),
    ("CertificateSums", "dimension", {"sums": VECTOR}),
    ("CertificateSums", "members", {"sites": ()}),
    ("CertificateSums", "members", {"sites": SITES[:1] * 2}),
    ("CertificateSums", "members", {"sites": tuple(m.CoveredSite(f"n{i}", 1, 1.0) for i in range(41))}),
    ("CertificateSums", "name", {"sites": (m.CoveredSite("A", 1, 1.0),)}),
    ("CertificateSums", "sequence", {"sites": (m.CoveredSite("a", 0, 1.0),)}),
    ("CertificateSums", "range", {"sites": (m.CoveredSite("a", 1, -1.0),)}),
    ("Certified", "dimension", {"bounds": np.ones(3)}),
    ("Certified", "dimension", {"duals": np.ones(1)}),
    ("Certified", "not-finite", {"bounds": np.array([INF, 0.0])}),
    ("Certified", "members", {"sites": ()}),
    ("Certified", "sequence", {"ticks": -1}),
    ("Leave", "sequence", {"incarnation": 0}),
    ("Leave", "garbage", {"reason": "\n"}),
]
LABELS = [f"{kind}-{reason}-{next(iter(changes))}" for kind, reason, changes in WRONG]


@pytest.mark.parametrize(("kind", "reason", "changes"), WRONG, ids=LABELS)
def test_wrong_values_are_refused_at_both_ends(kind, reason, changes, monkeypatch):
    bad = changed(KINDS[kind].samples[0], **changes)
    enumerations = {"reason": m.RefusalReason, "edge": m.EdgeState}
    if not any(name in enumerations for name in changes) and "state=4" not in repr(bad):
        with pytest.raises(MalformedError) as refused:
            encode(kind, bad)
        assert refused.value.reason == reason
    with monkeypatch.context() as patch:  # a dishonest peer does not check
        patch.setattr(validation, "check", lambda *_: None)
        try:
            data = encode(kind, bad)
        except ValueError:
            return  # protobuf itself cannot say it: a negative count, half a character
    with pytest.raises(MalformedError) as refused:
        decode(kind, data)
    assert refused.value.reason == reason
    assert len(str(refused.value)) < 300


@pytest.mark.parametrize(("kind", "reason", "changes"), WRONG, ids=LABELS)
def test_the_promises_can_fail(kind, reason, changes):
    """Every wrong value from above, as if the decoder had let it through."""
    assert reason in REASONS
    sample = KINDS[kind].samples[0]
    KINDS[kind].sound(frozen(sample))
    with pytest.raises((AssertionError, UnicodeEncodeError)):  # the second: half a character has no bytes
        KINDS[kind].sound(frozen(changed(sample, **changes)))


def frozen(value):
    """Return a message with vectors that cannot be written, as a decoder makes them."""
    if isinstance(value, m.Statistics):
        return changed(value, entries=tuple(frozen(entry) for entry in value.entries))
    arrays = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    return changed(
        value, **{name: np.frombuffer(v.tobytes()) for name, v in arrays.items() if isinstance(v, np.ndarray)}
    )


def test_the_promises_know_a_vector_that_can_be_written():
    with pytest.raises(AssertionError):
        KINDS["Push"].sound(changed(PUSH, vector=np.ones(D)))


def test_a_push_of_another_dimension():
    data = codec.encode(PUSH, PDMM)
    for dimension in (4, 12):
        with pytest.raises(MalformedError, match=f"vector has 6 numbers, expected {dimension}: do the") as refused:
            codec.decode(data, changed(PDMM, dimension=dimension))
        assert refused.value.reason == "dimension"
    short = codec.encode(changed(PUSH, vector=np.ones(12), float32=True), changed(PDMM, dimension=12))
    with pytest.raises(MalformedError, match="vector has 12 numbers, expected 6"):
        codec.decode(short, PDMM)


def test_another_version_is_refused_in_words():
    data = content("Challenge", KINDS["Challenge"].samples[0])
    for version, words in ((3, r"speaks version 3 .* this one version 2: this peer needs a newer"), (0, "states no")):
        with pytest.raises(MalformedError, match=words) as refused:
            codec.decode(frame("Challenge", data + field(1, 0, version)), PDMM)
        assert refused.value.reason == "version"


@pytest.mark.parametrize("kind", KINDS)
def test_unknown_fields_are_ignored(kind):
    sample = KINDS[kind].samples[0]
    later = field(99, 2, b"later") + field(50, 0, 2**64 - 1) + field(51, 1, bytes(8)) + field(52, 5, bytes(4))
    data = content(kind, sample)
    for whole in (data + later, later + data):
        assert plain(decode(kind, frame(kind, whole))) == plain(sample)


def test_a_frame_holds_one_message_of_a_known_kind():
    leave = codec.encode(m.Leave(1), PDMM)
    for data in (b"", leave + leave, leave + field(99, 0, 1), field(99, 2, b"later"), field(11, 0, 1)):
        with pytest.raises(MalformedError):
            codec.decode(data, PDMM)


def test_fields_may_come_in_any_order_but_only_one_vector():
    whole = content("Push", PUSH)
    head = whole[: -len(VECTOR.tobytes()) - 2]
    values = struct.pack("<6d", 1, 2, 3, 4, 5, 6)
    for data in (head + field(8, 2, values), field(8, 2, values) + head):
        assert codec.decode(frame("Push", data), PDMM).vector.tolist() == [1, 2, 3, 4, 5, 6]
    for more in (b"", field(8, 2, values) * 2, field(8, 2, values) + field(9, 2, struct.pack("<6f", *range(6)))):
        with pytest.raises(MalformedError, match="a push has one vector"):
            codec.decode(frame("Push", head + more), PDMM)


@pytest.mark.parametrize(
    ("kind", "bomb", "reason"),
    [
        ("Heartbeat", field(5, 2, b"") * 33, "members"),
        ("Heartbeat", field(5, 2, b"") * 5000, "too-large"),
        ("Heartbeat", field(5, 2, bytes(641)), "members"),
        ("Heartbeat", field(5, 2, field(9, 0, 0) * 100), "too-large"),
        ("Push", field(99, 0, 0) * 200, "too-large"),
        ("Push", bytes(48 + 4097), "too-large"),
        ("Push", b"\x0b" * 90, "garbage"),  # groups in groups
        ("Push", b"\x6a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "garbage"),  # a length beyond everything
        ("Push", b"\x6a" + b"\xff" * 20, "garbage"),
        ("Refusal", field(3, 2, b"") * 40, "members"),
        ("Hello", field(7, 2, b"") * 30000, "too-large"),
        ("Statistics", field(1, 2, b"") * 65, "members"),
        ("Statistics", field(1, 2, field(9, 0, 0) * 80), "too-large"),
        ("Statistics", field(1, 2, bytes(3 * 8 * 2 + 129)), "members"),
        ("CertificateSums", field(3, 2, b"") * 41, "members"),
        ("Certified", field(7, 2, bytes(129)), "members"),
        ("Certified", field(7, 2, b"") * 200, "too-large"),
        ("Leave", bytes(6000), "too-large"),
        ("SignedHello", field(3, 0, 0) * 100_000, "too-large"),
    ],
)
def test_a_bomb_never_reaches_protobuf(kind, bomb, reason, monkeypatch):
    def parsed(*_):
        raise AssertionError("protobuf was given a bomb")

    monkeypatch.setattr(codec, "_parsed", parsed)
    with pytest.raises(MalformedError) as refused:
        decode(kind, frame(kind, bomb))
    assert refused.value.reason == reason


@given(st.lists(st.floats() | st.sampled_from([1e100, -1e100, math.nextafter(1e100, 2e100)]), max_size=9))
def test_numbers_are_bounded_by_their_bits(values):
    good = all(abs(x) <= 1e100 for x in values)
    assert validation.within(np.array(values, dtype=float), validation.BOUND) is good


# The local command line


def test_control_messages():
    assert codec.decode_control(codec.encode_control("stop: maintenance")) == "stop: maintenance"
    status = '{"ticks": 3,\n "text": "é"}' * 1000
    assert codec.decode_control(codec.encode_control(status, reply=True), reply=True) == status
    for text in ("two\nlines", "x" * 5000):
        with pytest.raises(MalformedError):
            codec.decode_control(codec.encode_control(text))
    with pytest.raises(MalformedError, match="allowed"):
        codec.encode_control("x" * (STATUS_BYTES + 1), reply=True)
    with pytest.raises(MalformedError, match="states no version"):
        codec.decode_control(b"")


@given(st.binary(max_size=60), st.booleans())
def test_no_bytes_break_the_decoder_of_control_messages(data, reply):
    with contextlib.suppress(MalformedError):
        assert isinstance(codec.decode_control(data, reply), str)


# Anything at all: only a sound value or MalformedError comes out

EDGES = [0, 1, 2, 3, 7, 8, 32, 127, 128, 2**31, 2**32 - 1, 2**32, 2**62 - 1, 2**62, 2**64 - 1]
DOUBLES = [0.0, -0.0, 1.0, -1.0, 1e100, -1e100, 1.1e100, 1e308, 5e-324, 1e16, NAN, INF, -INF]
STRINGS = [b"", b"a", b"a.b-c", b"-a", b"A", b"a" * 63, b"a" * 64, b"\xff\xfe", b"a\n", "é".encode(), b"\x00", b"x:1",
           b"x:0", b"x:99999", b"[::1]:80", b"[:1]:80", b"x" * 300, b"y" * 2000, bytes(32),
           b"\xed\xa0\x80"]  # fmt: skip
TYPES = descriptor_pb2.FieldDescriptorProto
FILE = descriptor_pb2.FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)
SCHEMA = {message.name: list(message.field) for message in FILE.message_type}
LENGTHS = {"vector": D, "model": D, "sums": PDMM.sums, "bounds": OUTPUTS, "duals": OUTPUTS}
LENGTHS |= dict.fromkeys(("sum", "spread", "largest"), 2)


def wild_vector(rng, length):
    if rng.random() < 0.2:
        return rng.randbytes(rng.randrange(0, 60))
    wild = (rng.choice(DOUBLES) if rng.random() < 0.05 else rng.gauss(0, 1) for _ in range(length))
    return struct.pack(f"<{length}d", *wild)


def wild_field(rng, f, sane):
    """Return a field of the schema with a likely or an unlikely value; sometimes of another type altogether."""
    likely = rng.random() < sane
    if rng.random() < 0.01:
        return field(
            f.number, *rng.choice([(0, rng.choice(EDGES)), (1, rng.randbytes(8)), (2, b"x"), (5, rng.randbytes(4))])
        )
    if f.type == TYPES.TYPE_MESSAGE:
        repeated = f.label == TYPES.LABEL_REPEATED
        count = (rng.choice([0, 1, 2]) if repeated else 1) if likely else rng.choice([5, 33, 41])
        inner = f.type_name.rsplit(".", 1)[1]
        return b"".join(field(f.number, 2, wild(rng, inner, sane)) for _ in range(count))
    if f.type == TYPES.TYPE_STRING:
        usual = {"address": b"h:80", "name": b"n%d" % rng.randrange(99), "study": b"{}", "text": b"hm"}
        return field(f.number, 2, usual.get(f.name, b"peer") if likely else rng.choice(STRINGS))
    if f.type == TYPES.TYPE_BYTES:
        usual = {"nonce": bytes(32), "digest": bytes(32), "vector32": rng.randbytes(24), "scale": bytes(32)}
        usual |= {"certificate": b"PEM", "hello": b"hello", "frozen": rng.choice([b"", bytes(32)])}
        content = wild_vector(rng, LENGTHS[f.name]) if f.name in LENGTHS else usual.get(f.name, b"")
        return field(f.number, 2, content if likely else rng.choice(STRINGS))
    if f.type == TYPES.TYPE_DOUBLE:
        return field(f.number, 1, struct.pack("<d", 2.5 if likely else rng.choice(DOUBLES)))
    usual_number = 2 if f.name == "version" else 1
    return field(f.number, 0, usual_number if likely else rng.choice(EDGES))


def wild(rng, name, sane=None):
    """Return structurally valid protobuf, with fields missing, doubled, shuffled and wild."""
    sane = rng.choice([0.5, 0.9, 0.99, 1.0]) if sane is None else sane
    chosen = [f for f in SCHEMA[name] if rng.random() < sane + 0.005]
    chosen = [f for f in chosen if f.name != "vector32" or rng.random() < 0.1]
    if rng.random() < 0.1 and chosen:
        chosen += rng.sample(chosen, 1)
        rng.shuffle(chosen)
    return b"".join(wild_field(rng, f, sane) for f in chosen)


def damaged(rng, data):
    """Return an honest message with a few bytes flipped, put in, taken out, cut off, or spliced with itself."""
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


def fuzz(kind, cases, seed):
    """Put many cases through one decoder. Fail if anything but a sound value or MalformedError comes out."""
    rng, outcome, name = random.Random(f"{kind}{seed}"), Counter(), kind.split()[0]
    honest = [content(kind, sample) for sample in KINDS[kind].samples]
    for _ in range(cases):
        draw = rng.random()
        if draw < 0.15:
            data = rng.randbytes(rng.randrange(0, 120))
        else:
            data = damaged(rng, rng.choice(honest)) if draw < 0.6 else wild(rng, name)
        whole = frame(kind, data)
        if name != "Hello" and rng.random() < 0.05:
            whole = damaged(rng, whole)
        try:
            value = decode(kind, whole)
        except MalformedError as refused:
            outcome[refused.reason if len(str(refused)) < 300 else "a sentence without end"] += 1
        else:
            KINDS[type(value).__name__ if type(value).__name__ != name else kind].sound(value)
            outcome["sound"] += 1
    assert set(outcome) <= REASONS | {"sound"}
    return outcome


FUZZ = dict.fromkeys(KINDS, 7_000) | {"Push": 25_000}


def test_the_cases_are_many():
    assert sum(FUZZ.values()) >= 100_000


@pytest.mark.parametrize("kind", FUZZ)
def test_no_bytes_break_the_decoder(kind):
    outcome = fuzz(kind, FUZZ[kind], 0)
    assert sum(outcome.values()) == FUZZ[kind]
    assert outcome["sound"] > FUZZ[kind] / 50, "too few come through to say anything of the promises"
    expected = {
        "Challenge": {"garbage", "version", "too-large"},
        "SignedHello": {"garbage", "too-large"},
        "Hello": {"garbage", "name", "sequence", "members"},
        "Push": {"garbage", "dimension", "not-finite", "range", "sequence"},
        "Statistics": {"garbage", "name", "dimension", "not-finite", "members"},
        "Certified": {"garbage", "name", "dimension", "not-finite", "range", "sequence", "members"},
    }
    assert expected.get(kind, {"garbage"}) <= set(outcome), "the fuzzer does not provoke some errors"


@pytest.mark.parametrize(
    ("kind", "rule"),
    [
        *[("Push", rule) for rule in ("vector", "seq", "Push.time", "incarnation", "weight", "scale")],
        *[("Heartbeat", rule) for rule in ("members", "name", "address", "certified", "number", "rows", "loss")],
        ("Refusal", "text"),
        ("Hello", "digest"),
        *[("Certified", rule) for rule in ("sites", "id", "time", "model", "bounds")],
        *[("Statistics", rule) for rule in ("name", "entries", "sum", "frozen")],
    ],
)
def test_the_fuzzer_notices_a_missing_check(kind, rule, monkeypatch):
    monkeypatch.setitem(validation.RULES, rule, lambda *_: None)
    with pytest.raises(AssertionError):
        fuzz(kind, 5000, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_no_bytes_break_the_decoder_and_small_ones_are_shown(kind):
    """The same, by hypothesis: slower, but a failure shrinks to a few bytes."""
    edits = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 3), st.binary(max_size=4)), max_size=4)

    @settings(max_examples=100)
    @given(st.binary(max_size=60) | st.sampled_from([encode(kind, s) for s in KINDS[kind].samples]), edits)
    def check(data, changes):
        for at, cut, insert in changes:
            data = data[:at] + insert + data[at + cut :]
        with contextlib.suppress(MalformedError):
            value = decode(kind, data)
            name = type(value).__name__
            KINDS[kind if kind.startswith(name) else name].sound(value)

    check()


def test_varints_are_those_of_protobuf():
    for value in (0, 1, 127, 128, 300, 2**32, 2**62):
        assert fields.varint(value) == varint(value)
