"""Links over real sockets and TLS: what arrives, who is let in, and what closes a link."""

import asyncio
import contextlib
import ssl
import time

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
import grpc

from gadget_svm.peers.events import DialFailed, Hangup, LinkDown, LinkUp, Received, Rejected
from gadget_svm.peers.process import credential_files, grpc_links
from gadget_svm.peers.process.transport import ClientStream
from gadget_svm.peers.wire.codec import encode
from gadget_svm.peers.wire.limits import Limits
from gadget_svm.peers.wire.messages import Acknowledgement, Challenge, Hello, Leave, Push, SignedHello
from support.peer_process_kit import LIMITS, Certificates, End, RawLink, hello, push, until

DAY = 86_400.0


def run(scenario):
    asyncio.run(asyncio.wait_for(scenario, 60))


@contextlib.asynccontextmanager
async def linked(certificates, limits=LIMITS, **settings):
    """Two ends with a link that a opened, after both hellos; the link's numbers at both ends."""
    async with End(certificates.of("a"), limits, **settings) as a, End(certificates.of("b"), limits, **settings) as b:
        await a.dial(b, "b")
        await a.next(Received)
        await b.next(Received)
        yield a, b, (await a.next(LinkUp)).link, (await b.next(LinkUp)).link


def reasons(end):
    return [event.reason for event in end.all(Rejected)]


def later(monkeypatch, seconds):
    """The clock of certificates goes forward."""
    real = time.time

    class Clock:
        @staticmethod
        def time():
            return real() + seconds

    for module in (credential_files, grpc_links):
        monkeypatch.setattr(module, "time", Clock)


# What arrives


def test_both_ends_learn_who_the_other_is_and_get_its_hello_first(certificates):
    async def scenario():
        async with linked(certificates) as (a, b, _, _):
            assert a.events[0] == LinkUp(1, "b", b.address)
            assert b.events[0] == LinkUp(1, "a", None)
            assert a.events[1] == Received(1, hello("b"))
            assert b.events[1] == Received(1, hello("a"))
            assert (len(a.links), len(b.links)) == (1, 1)

    run(scenario())


def test_messages_arrive_whole_and_in_order_in_both_directions(certificates):
    async def scenario():
        async with linked(certificates, message_rate=1e6, burst=1000) as (a, b, at_a, at_b):
            for seq in range(300):
                a.send(at_a, push(seq))
                b.send(at_b, Acknowledgement(seq, 7))
            await b.next(Received, 301)
            await a.next(Received, 301)
            assert [event.message.seq for event in b.all(Received)[1:]] == list(range(300))
            assert [event.message.seq for event in a.all(Received)[1:]] == list(range(300))
            np.testing.assert_array_equal(b.all(Received)[5].message.vector, push().vector)
            assert a.counts["messages_sent"] == b.counts["messages_received"] == 301
            assert a.counts["bytes_sent"] == b.counts["bytes_received"]

    run(scenario())


@pytest.mark.parametrize("float32", [False, True])
def test_vectors_travel_with_half_the_bytes_if_the_node_wants_that(certificates, float32):
    async def scenario():
        async with linked(certificates) as (a, b, at_a, _):
            a.send(at_a, push(float32=float32))
            found = (await b.next(Received, 2)).message.vector
            assert (found == np.float32(0.1)).all() == float32

    run(scenario())


def test_what_was_sent_before_a_hangup_arrives_and_only_the_other_end_is_told(certificates):
    async def scenario():
        async with linked(certificates, message_rate=1e6, burst=1000) as (a, b, at_a, at_b):
            for seq in range(50):
                b.send(at_b, push(seq))
            b.send(at_b, Leave(7, "bye"))
            b.links.hang_up(Hangup(at_b, "leaving"))
            b.send(at_b, push(99))  # too late
            down = await a.next(LinkDown)
            assert isinstance(a.all(Received)[-1].message, Leave)
            assert len(a.all(Received)) == 52
            assert down.link == at_a
            assert not b.all(LinkDown)
            assert (len(a.links), len(b.links)) == (0, 0)
        async with linked(certificates) as (a, b, at_a, _):
            a.send(at_a, Leave(7))
            a.links.hang_up(Hangup(at_a, "leaving"))
            await b.next(LinkDown)
            assert isinstance(b.all(Received)[-1].message, Leave)
            assert not a.all(LinkDown)

    run(scenario())


def test_the_death_of_one_end_is_seen_at_the_other(certificates):
    async def scenario():
        async with linked(certificates) as (a, b, _, _):
            await b.server.stop(0)
            assert (await a.next(LinkDown)).reason

    run(scenario())


# Who is let in


def test_a_dial_that_leads_nowhere_fails_with_a_reason(certificates):
    async def scenario():
        async with End(certificates.of("a")) as a:
            await a.dial("127.0.0.1:9")
            failed = await a.next(DialFailed)
            assert failed.address == "127.0.0.1:9"
            assert "unavailable" in failed.reason
            assert a.counts["dial_failures"] == 1

    run(scenario())


def test_a_second_process_with_the_same_certificate_gets_a_link_and_so_does_a_peer_that_dials_itself(certificates):
    """The node compares incarnations: only so it learns that another process has its name."""

    async def scenario():
        async with End(certificates.of("a")) as a, End(certificates.of("a")) as copy:
            await a.dial(copy)
            assert (await copy.next(Received)).message.name == "a"
            assert (await a.next(Received)).message.name == "a"
            await a.dial(a)
            await a.next(Received, 3)  # both ends

    run(scenario())


def test_silence_ends_a_dial(certificates, monkeypatch):
    monkeypatch.setattr(grpc_links, "DIAL_TIMEOUT_S", 0.3)

    async def scenario():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with server, End(certificates.of("a")) as a:
            port = server.sockets[0].getsockname()[1]
            await a.dial(f"127.0.0.1:{port}", "b")
            assert "within 0.3 s" in (await a.next(DialFailed)).reason

    run(scenario())


def foreign(_, tmp_path):
    """A certificate for b by another authority."""
    return Certificates(tmp_path / "elsewhere").of("b")


def expired(certificates, tmp_path):
    from gadget_svm.authority.certificates import issue

    old = issue(certificates.folder, "old", days=30, now=time.time() - 31 * DAY, out=tmp_path / "old")
    read = (old.ca.read_bytes(), old.key.read_bytes(), old.cert.read_bytes())
    return grpc.ssl_channel_credentials(*read)


def without(certificates, _):
    return grpc.ssl_channel_credentials(certificates.paths("a")["ca"].read_bytes())


def authority_itself(certificates, _):
    read = [(certificates.folder / file).read_bytes() for file in ("ca.pem", "ca.key", "ca.pem")]
    return grpc.ssl_channel_credentials(*read)


def foreign_client(certificates, tmp_path):
    """One who knows our authority's certificate, with a certificate of its own authority."""
    own = foreign(certificates, tmp_path).credentials
    return grpc.ssl_channel_credentials(certificates.paths("a")["ca"].read_bytes(), own.key_pem, own.cert_pem)


@pytest.mark.parametrize("credentials", [foreign_client, expired, without, authority_itself, lambda *_: None])
def test_without_a_certificate_of_the_authority_no_link_opens(certificates, tmp_path, monkeypatch, credentials):
    monkeypatch.setattr("gadget_svm.peers.process.handshake_counter.GRACE_S", -1.0)

    async def scenario():
        async with End(certificates.of("a")) as a, RawLink(a, credentials(certificates, tmp_path)) as caller:
            with contextlib.suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
                await caller.call.write(encode(Challenge(bytes(32), b"x"), LIMITS))
            assert await caller.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION)
            await until(lambda: a.links.handshakes.take_failed() or reasons(a) == ["stranger"])
            assert not a.all(LinkUp)

    run(scenario())


def test_a_server_of_another_authority_is_not_believed(certificates, tmp_path):
    async def scenario():
        async with End(certificates.of("a")) as a, End(foreign(certificates, tmp_path)) as b:
            await a.dial(b)
            reason = (await a.next(DialFailed)).reason
            assert reason.startswith("unavailable: its certificate is of another authority than ours: use")
            assert not b.events

    run(scenario())


def test_a_proxy_that_shows_its_own_authority_is_named(certificates, tmp_path):
    paths = Certificates(tmp_path / "proxy").paths("b")
    (tmp_path / "chain.pem").write_bytes(paths["cert"].read_bytes() + paths["ca"].read_bytes())
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "chain.pem", paths["key"])

    async def scenario():
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0, ssl=tls)
        async with server, End(certificates.of("a")) as a:
            await a.dial(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
            assert "an authority that we do not know" in (await a.next(DialFailed)).reason

    run(scenario())


def test_a_port_without_tls_is_named(certificates):
    def greet(_, writer):
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")

    async def scenario():
        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        async with server, End(certificates.of("a")) as a:
            await a.dial(f"127.0.0.1:{server.sockets[0].getsockname()[1]}")
            assert "that port does not speak TLS: another program listens there" in (await a.next(DialFailed)).reason

    run(scenario())


def test_a_server_with_another_name_than_expected_is_refused(certificates):
    async def scenario():
        async with End(certificates.of("a")) as a, End(certificates.of("c")) as c:
            await a.dial(c, "b")
            await a.next(DialFailed)
            assert not a.all(LinkUp)
            assert not c.all(LinkUp)

    run(scenario())


def test_revoked_peers_are_refused_by_either_end(own_certificates):
    own_certificates.paths("a"), own_certificates.paths("b")
    own_certificates.revoke("b", "a")

    async def scenario():
        async with End(own_certificates.of("a")) as a, End(own_certificates.of("b")) as b:
            await b.dial(a)
            assert "the certificate of 'b' is revoked" in (await b.next(DialFailed)).reason
            assert reasons(a) == ["revoked"]
            await a.dial(b, "b")
            assert "revoked" in (await a.next(DialFailed)).reason
            assert not a.all(LinkUp)

    run(scenario())


def test_an_open_link_is_cut_when_a_new_list_revokes_its_peer(own_certificates):
    async def scenario():
        async with linked(own_certificates) as (a, b, _, _):
            own_certificates.revoke("b", "a")
            assert not a.all(LinkDown)
            assert a.credentials.reload()
            a.links.check_certificates()
            assert a.all(LinkDown) == [LinkDown(1, "revoked")]
            assert reasons(a) == ["revoked"]
            await b.next(LinkDown)
            await b.dial(a)
            await b.next(DialFailed)

    run(scenario())


def test_open_links_are_cut_when_a_certificate_of_either_end_expires(own_certificates, monkeypatch):
    own_certificates.paths("a", days=300)
    own_certificates.paths("b", days=1)

    async def scenario():
        async with linked(own_certificates) as (a, b, _, _):
            a.links.check_certificates()
            assert not a.all(LinkDown)
            later(monkeypatch, 2 * DAY)
            a.links.check_certificates()
            assert a.all(LinkDown) == [LinkDown(1, "expired")]
            b.links.check_certificates()
            assert b.all(LinkDown)
            await b.dial(a)
            assert "own certificate is expired" in (await b.next(DialFailed)).reason

    run(scenario())


def test_a_renewed_certificate_is_used_for_new_links_while_others_stay(own_certificates):
    async def scenario():
        async with linked(own_certificates) as (a, b, _, _):
            before = b.credentials.credentials.serial
            own_certificates.paths("b", overwrite=True)
            assert b.credentials.reload()
            assert b.credentials.credentials.serial != before
            b.links.check_certificates()
            assert not b.all(LinkDown)
            await a.dial(b, "b")
            await a.next(LinkUp, 2)
            await b.dial(a, "a")
            await a.next(LinkUp, 3)
            await a.next(Received, 3)
            assert len(a.links) == 3

    run(scenario())


def test_files_that_cannot_be_used_leave_the_credentials_in_use(own_certificates, caplog):
    credentials = own_certificates.of("a")
    assert not credentials.reload()
    for key in ("cert", "revoked"):
        good = own_certificates.paths("a")[key].read_bytes()
        own_certificates.paths("a")[key].write_bytes(b"damaged")
        assert not credentials.reload()
        assert not credentials.reload()
        assert caplog.text.count("the credentials in use stay") == 1
        caplog.clear()
        own_certificates.paths("a")[key].write_bytes(good)
        assert credentials.reload()
    assert not credentials.problem()


# What proves an identity


def test_a_hello_is_signed_for_this_link_by_the_certificate_of_the_connection(certificates):
    """Four attempts by the holder of b's certificate, each with one thing wrong."""

    async def attempt(a, spoil):
        b, c = certificates.of("b"), certificates.of("c")
        seen = len(a.all(Rejected))
        async with RawLink(a, b.channel_credentials()) as link:
            await spoil(link, b, c)
            assert await link.code() is not grpc.StatusCode.OK
        assert len(a.all(Rejected)) == seen + 1
        assert not a.all(Received)
        return reasons(a)[-1]

    async def in_the_name_of_c(link, b, _):
        handshake = await link.shake(b)
        await link.call.write(encode(handshake.sign(hello("c")), LIMITS))

    async def with_the_certificate_of_c(link, _, c):
        with contextlib.suppress(AssertionError, grpc.aio.AioRpcError):
            await link.greet(c)

    async def with_another_signature(link, b, _):
        handshake = await link.shake(b)
        signed = handshake.sign(hello("b"))
        await link.call.write(encode(SignedHello(signed.hello, signed.signature[:-1] + b"!"), LIMITS))

    async def of_another_link(link, b, _):
        handshake = await link.shake(b)
        async with RawLink(link_target, b.channel_credentials()) as other:
            replayed = (await other.shake(b)).sign(hello("b"))
        assert replayed.signature != handshake.sign(hello("b")).signature
        await link.call.write(encode(replayed, LIMITS))

    async def scenario():
        nonlocal link_target
        async with End(certificates.of("a")) as a:
            link_target = a.address
            assert await attempt(a, in_the_name_of_c) == "name"
            assert await attempt(a, with_the_certificate_of_c) == "stranger"
            assert await attempt(a, with_another_signature) == "stranger"
            assert await attempt(a, of_another_link) == "stranger"

    link_target = ""
    run(scenario())


def test_nothing_passes_before_the_hello(certificates, monkeypatch):
    monkeypatch.setattr(grpc_links, "HELLO_TIMEOUT_S", 0.3)

    async def scenario():
        b = certificates.of("b")
        async with End(certificates.of("a")) as a:
            for first in (push(), Challenge(bytes(32), b"x")):
                async with RawLink(a, b.channel_credentials()) as link:
                    await link.shake(b)
                    await link.call.write(encode(first, LIMITS))
                    assert await link.code() is grpc.StatusCode.FAILED_PRECONDITION
            async with RawLink(a, b.channel_credentials()) as link:
                await link.shake(b)
                assert await link.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert reasons(a) == ["sequence", "sequence", "timeout"]
            assert len(a.all(LinkUp)) == len(a.all(LinkDown)) == 3
            assert not a.all(Received)

    run(scenario())


# Bounds


@pytest.mark.parametrize("data", [b"", b"\xff" * 50, b"\x0a\x00", encode(push(), LIMITS)[:-5]], ids=range(4))
def test_a_malformed_message_closes_the_link(certificates, data):
    async def scenario():
        b = certificates.of("b")
        async with End(certificates.of("a")) as a, RawLink(a, b.channel_credentials()) as link:
            await link.greet(b)
            await link.call.write(data)
            assert await link.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert len(a.all(Rejected)) == 1
            assert a.all(LinkDown)[0].reason.startswith("rejected: ")
            assert len(a.all(Received)) == 1

    run(scenario())


def test_a_message_that_is_too_large_is_not_read(certificates):
    async def scenario():
        b = certificates.of("b")
        async with End(certificates.of("a")) as a, RawLink(a, b.channel_credentials()) as link:
            await link.greet(b)
            await link.call.write(bytes(LIMITS.frame_bytes + 1))
            assert await link.code() is not grpc.StatusCode.OK
            await a.next(LinkDown)
            assert len(a.all(Received)) == 1

    run(scenario())


def test_a_flood_is_slowed_down_and_nobody_else_waits(certificates):
    async def scenario():
        async with linked(certificates, message_rate=50.0, burst=20) as (a, b, at_a, _), End(certificates.of("c")) as c:
            for seq in range(200):
                a.send(at_a, push(seq))
            await b.next(Rejected)
            began = time.monotonic()
            await c.dial(b)
            await b.next(LinkUp, 2)
            await c.next(Received)
            assert len(b.all(Received)) < 60
            await until(lambda: len(b.all(Received)) > 60)
            assert time.monotonic() - began > 0.3
            assert set(reasons(b)) == {"rate"}
            assert not b.all(LinkDown)

    run(scenario())


def test_a_link_that_does_not_take_what_is_sent_to_it_is_closed(certificates):
    """b opens a link and never reads; a's queue is bounded."""
    limits = Limits("pdmm", features=100_000, outputs=1, dimension=100_001)

    async def scenario():
        b = certificates.of("b")
        async with End(certificates.of("a"), limits) as a, RawLink(a, b.channel_credentials()) as link:
            await link.greet(b, limits)
            number = (await a.next(LinkUp)).link
            await a.next(Received)
            for seq in range(200):
                a.send(number, push(seq, 100_001))
                await asyncio.sleep(0)
            assert "does not take" in (await a.next(LinkDown)).reason
            assert len(a.links) == 0

    run(scenario())


def test_a_peer_has_a_few_links_only(certificates):
    async def scenario():
        b = certificates.of("b")
        async with End(certificates.of("a")) as a, contextlib.AsyncExitStack() as stack:
            for number in range(grpc_links.MAX_LINKS_PER_PEER + 1):
                link = await stack.enter_async_context(RawLink(a, b.channel_credentials()))
                await link.greet(b) if number < grpc_links.MAX_LINKS_PER_PEER else await link.shake(b)
            assert await link.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert reasons(a) == ["busy"]
            assert len(a.links) == grpc_links.MAX_LINKS_PER_PEER

    run(scenario())


def test_messages_have_the_types_that_they_were_sent_with(certificates):
    async def scenario():
        async with linked(certificates) as (a, b, at_a, _):
            for message in (push(), Acknowledgement(1, 7), Leave(7, "bye")):
                a.send(at_a, message)
            await b.next(Received, 4)
            assert [type(event.message) for event in b.all(Received)] == [Hello, Push, Acknowledgement, Leave]

    run(scenario())


def test_small_messages_that_wait_travel_together_and_large_ones_alone(certificates, monkeypatch):
    limits = Limits("pdmm", features=9000, outputs=1, dimension=9001)
    sizes = []
    write = ClientStream.write

    async def noted(stream, data):
        sizes.append(len(data))
        await write(stream, data)

    monkeypatch.setattr(ClientStream, "write", noted)

    async def scenario():
        async with linked(certificates, limits, message_rate=1e6, burst=1000) as (a, b, at_a, _):
            sizes.clear()
            sent = [*(Acknowledgement(n, 7) for n in range(200)), push(0, 9001), Acknowledgement(200, 7), Leave(7)]
            for message in sent:
                a.send(at_a, message)
            await b.next(Received, 1 + len(sent))
            got = [event.message for event in b.all(Received)[1:]]
            assert [type(message) for message in got] == [type(message) for message in sent]
            assert [m.seq for m in got if isinstance(m, Acknowledgement)] == list(range(201))
            assert len(sizes) == 4 + 1 + 1  # 64 at a time, the push, the rest
            assert a.counts["bytes_sent"] == b.counts["bytes_received"]

    run(scenario())


@pytest.mark.parametrize(
    ("extra", "reason"),
    [
        (b"\x08\x01", "garbage"),  # a number between frames
        (encode(Acknowledgement(1, 7), LIMITS) * 65, "too-large"),
        (encode(Acknowledgement(1, 7), LIMITS)[:-1], "garbage"),
        (encode(Challenge(bytes(32), b"x"), LIMITS), "sequence"),
    ],
    ids=range(4),
)
def test_a_batch_with_anything_malformed_closes_the_link(certificates, extra, reason):
    async def scenario():
        b = certificates.of("b")
        async with End(certificates.of("a")) as a, RawLink(a, b.channel_credentials()) as link:
            await link.greet(b)
            await link.call.write(encode(Acknowledgement(0, 7), LIMITS) + extra)
            assert await link.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert reasons(a) == [reason]

    run(scenario())
