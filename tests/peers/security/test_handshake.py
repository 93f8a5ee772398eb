"""The handshake of a link: both ends learn who the other is, and a peer between two others is found out."""

import dataclasses
import time

import pytest

pytest.importorskip("cryptography")
pytest.importorskip("google.protobuf")

from gadget_svm.authority import certificates as certs
from gadget_svm.peers.security.errors import UntrustedError
from gadget_svm.peers.security.handshake import Handshake
from gadget_svm.peers.security.revocation import RevocationFile
from gadget_svm.peers.wire.limits import Limits, MalformedError
from gadget_svm.peers.wire.messages import Challenge, Hello, SignedHello
from support.credentials_kit import load, make_verifier

LIMITS = Limits("pdmm", 3, 1, 3)
NOW = time.time()


def hello(name):
    return Hello(name, 7, "{}", bytes(32))


@pytest.fixture
def end(own):
    """Make one end of a handshake."""
    numbers = iter(range(1, 99))

    def make(name, dialled, expect=None, authority="ca"):
        credentials, nonce = load(own, name, authority), next(numbers).to_bytes(32, "big")
        return Handshake(credentials, make_verifier(own), LIMITS, nonce=nonce, dialled=dialled, expect=expect)

    return make


def refused(call, *arguments):
    with pytest.raises(UntrustedError) as error:
        call(*arguments)
    return error.value.reason


def exchange(client, server, tls=None):
    """Exchange challenges. A server sees the client's certificate in TLS."""
    server.receive_challenge(client.challenge, NOW, tls or client.challenge.certificate)
    client.receive_challenge(server.challenge, NOW)


def test_both_ends_learn_who_the_other_is(end):
    client, server = end("a", True, expect="b"), end("b", False)
    assert client.receive_challenge(server.challenge, NOW).name == "b"
    assert server.receive_challenge(client.challenge, NOW, client.challenge.certificate).name == "a"
    assert server.verify(client.sign(hello("a")), NOW) == hello("a")
    assert client.verify(server.sign(hello("b")), NOW) == hello("b")


def test_the_name_that_was_dialled_must_answer(end):
    assert refused(end("a", True, expect="c").receive_challenge, end("b", False).challenge, NOW) == "stranger"


def test_a_certificate_that_is_not_accepted_ends_the_handshake(end, own):
    foreign = end("a", True, authority="foreign")
    assert refused(end("b", False).receive_challenge, foreign.challenge, NOW, foreign.challenge.certificate)
    client, server = end("a", True), end("b", False)
    assert refused(client.receive_challenge, server.challenge, NOW + 400 * 86_400) == "expired"
    assert refused(client.receive_challenge, Challenge(bytes(32), b"garbage"), NOW) == "stranger"
    certs.revoke(own / "ca", "b")
    assert refused(end("a", True).receive_challenge, server.challenge, NOW) == "revoked"


def test_a_revocation_between_challenge_and_hello_counts(end, own):
    client, server = end("a", True), end("b", False)
    exchange(client, server)
    signed = server.sign(hello("b"))
    certs.revoke(own / "ca", "b")
    authority = load(own, "a").authority
    client._verifier.revocations = RevocationFile(own / "ca" / "revoked.pem", authority).read(NOW)
    assert refused(client.verify, signed, NOW) == "revoked"


def test_a_server_compares_the_challenge_with_the_tls_connection(end):
    """b has a connection of its own to the server, and shows a's certificate in it."""
    client, server, between = end("a", True), end("b", False), end("b", True)
    assert refused(server.receive_challenge, client.challenge, NOW, between.challenge.certificate) == "stranger"
    assert refused(server.receive_challenge, client.challenge, NOW) == "stranger"


def test_the_holder_of_a_certificate_alone_cannot_sign(end):
    client, server = end("a", True), end("b", False)
    exchange(client, server)
    data = server.sign(hello("b")).hello
    for signature in (b"", b"x" * 70, load_signature(client, data)):
        assert refused(client.verify, SignedHello(data, signature), NOW) == "stranger"


def load_signature(client, data):
    """The signature of another key over the right bytes."""
    return client._credentials.sign(client._transcript(data, ours=False))


def test_a_signature_is_for_one_hello_on_one_link_to_one_peer(end):
    client, server = end("a", True), end("b", False)
    exchange(client, server)
    signed = server.sign(hello("b"))
    other = server.sign(dataclasses.replace(hello("b"), incarnation=8))
    assert refused(client.verify, dataclasses.replace(signed, hello=other.hello), NOW) == "stranger"
    again, same = end("a", True), end("b", False)
    exchange(again, same)
    assert refused(again.verify, signed, NOW) == "stranger"  # other nonces
    to_another = end("b", True)
    server.receive_challenge(dataclasses.replace(client.challenge, certificate=to_another.challenge.certificate), NOW,
                             to_another.challenge.certificate)  # fmt: skip
    assert refused(client.verify, server.sign(hello("b")), NOW) == "stranger"  # signed for another reader


def test_two_clients_cannot_be_connected_by_a_peer_between_them(end):
    """Both have dialled it, and it passes on what they say; each would take it for the other."""
    one, two = end("a", True), end("b", True)
    one.receive_challenge(two.challenge, NOW)
    two.receive_challenge(one.challenge, NOW)
    assert refused(one.verify, two.sign(hello("b")), NOW) == "stranger"
    assert refused(two.verify, one.sign(hello("a")), NOW) == "stranger"


@pytest.mark.parametrize("dialled", [False, True])
def test_what_an_end_has_signed_cannot_be_sent_back_to_it(end, dialled):
    mine = end("a", dialled)
    mine.receive_challenge(mine.challenge, NOW, mine.challenge.certificate)
    assert refused(mine.verify, mine.sign(hello("a")), NOW) == "stranger"


def test_no_hello_before_a_challenge(end):
    client, server = end("a", True), end("b", False)
    assert refused(client.sign, hello("a")) == "stranger"
    server.receive_challenge(client.challenge, NOW, client.challenge.certificate)
    assert refused(client.verify, server.sign(hello("b")), NOW) == "stranger"


def test_a_hello_is_in_the_signers_own_name(end):
    client, server = end("a", True), end("b", False)
    exchange(client, server)
    with pytest.raises(MalformedError, match="b speaks in the name of c") as error:
        client.verify(server.sign(hello("c")), NOW)
    assert error.value.reason == "name"


def test_a_hello_is_checked_like_every_message(end):
    client, server = end("a", True), end("b", False)
    exchange(client, server)
    data = b"no hello at all"
    signature = server._credentials.sign(server._transcript(data, ours=True))
    with pytest.raises(MalformedError):
        client.verify(SignedHello(data, signature), NOW)
