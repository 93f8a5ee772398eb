"""Callers who are not who they say, messages that are none, and too many of them: refused, counted, learned past."""

import asyncio
import contextlib
import json
import struct
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
import grpc

from gadget_svm.peers import arrivals, certs, identity, post
from gadget_svm.peers.calls import PeerError
from gadget_svm.peers.desk import CALLS, CALLS_EACH, ListenError
from gadget_svm.peers.envelope import (
    decode_ack,
    decode_hello_reply,
    encode_hello,
    encode_letter,
    encode_notice,
    encode_statistics,
)
from gadget_svm.peers.identity import IdentityError
from gadget_svm.peers.member import Member, State
from gadget_svm.peers.membership import Changes
from gadget_svm.peers.messages import METHODS, SERVICE, Hello, Notice, Statistics, Status
from support.peer_kit import Caller, Town, free_port, goes_on, letter, living, refused, rows, until

CODE = grpc.StatusCode
DAY = 86_400.0
PATIENT = {"suspect": 60.0, "dead": 60.0}
"""Where attackers share the process, and its one core, with the peers: a neighbour is not to be given up for it."""


def absorbed(peer):
    """What reaches the algorithm from here on."""
    taken, absorb = [], peer.learner.absorb

    def watch(parcels):
        taken.extend(parcels)
        absorb(parcels)

    peer.learner.absorb = watch
    return taken


def with_caller(town, attack, name="b", **values):
    """Run an attack by a holder of the certificate of ``name`` on a peer that learns; it has to learn on."""

    async def main():
        peer = town.peer("a", **values)
        async with living(peer), Caller(peer, town.identity(name).channel_credentials()) as call:
            await attack(peer, call)
            await goes_on(peer)

    asyncio.run(main())


# Who calls


def foreign_credentials(town, tmp_path):
    """A certificate for the name b of somebody else's authority, by one who knows our authority's certificate."""
    other = Town(tmp_path / "elsewhere")
    found = other.identity("b")
    return grpc.ssl_channel_credentials(town.identity("a").ca_pem, found.key_pem, found.cert_pem)


def expired_credentials(town, tmp_path):
    issued = certs.issue(town.folder / "ca", "b", days=30, now=time.time() - 31 * DAY, out=tmp_path / "old")
    return grpc.ssl_channel_credentials(issued.ca.read_bytes(), issued.key.read_bytes(), issued.cert.read_bytes())


def own_authority_as_client(town, _):
    authority = certs.Authority.load(town.folder / "ca")
    key, cert = ((authority.folder / file).read_bytes() for file in ("ca.key", "ca.pem"))
    return grpc.ssl_channel_credentials(cert, key, cert)


def no_certificate(town, _):
    return grpc.ssl_channel_credentials(town.identity("a").ca_pem)


def plaintext(*_):
    return None


def good(town, _):
    return town.identity("b").channel_credentials()


@pytest.mark.parametrize(
    ("credentials", "codes"),
    [
        (foreign_credentials, {CODE.UNAVAILABLE}),
        (expired_credentials, {CODE.UNAVAILABLE}),
        (no_certificate, {CODE.UNAVAILABLE}),
        (plaintext, {CODE.UNAVAILABLE}),
        (own_authority_as_client, {CODE.UNAVAILABLE, CODE.UNAUTHENTICATED}),
        (good, {CODE.OK}),
    ],
)
def test_only_a_certificate_of_our_authority_gets_through(town, tmp_path, monkeypatch, credentials, codes):
    """The others are counted, too, though no call of theirs gets as far as our code."""
    monkeypatch.setattr(arrivals, "GRACE", 0.0)

    async def main():
        peer = town.peer("a")
        async with living(peer), Caller(peer, credentials(town, tmp_path)) as call:
            taken = absorbed(peer)
            assert await call.code("Push", encode_letter(letter("b", peer))) in codes
            assert await call.code("Status", encode_notice(Notice("b"))) in codes
            await goes_on(peer)
            assert bool(taken) == (codes == {CODE.OK})
            if codes != {CODE.OK}:
                await until(lambda: sum(refused(peer).values()))
                assert refused(peer).keys() <= {"handshake", "stranger"}
            else:
                await asyncio.sleep(2)
                assert not refused(peer)

    asyncio.run(main())


def test_a_certificate_that_expires_while_connected_is_refused_at_the_next_call(town, monkeypatch):
    async def attack(peer, call):
        assert await call.code("Push", encode_letter(letter("b", peer))) is CODE.OK
        later = SimpleNamespace(time=lambda: time.time() + 400 * DAY)
        monkeypatch.setattr(identity, "time", later)
        assert await call.code("Push", encode_letter(letter("b", peer, seq=1))) is CODE.UNAUTHENTICATED
        monkeypatch.undo()
        assert refused(peer)["expired"] == 1

    with_caller(town, attack)


def test_a_revoked_client_is_refused_as_soon_as_the_new_list_is_there(town):
    async def attack(peer, call):
        assert await call.code("Push", encode_letter(letter("b", peer))) is CODE.OK
        town.revoke("b", "a")
        await until(lambda: peer.verifier._revoked.serials)
        taken = absorbed(peer)
        assert await call.code("Push", encode_letter(letter("b", peer, seq=1))) is CODE.UNAUTHENTICATED
        assert refused(peer)["revoked"] == 1
        await goes_on(peer)
        assert all(parcel.seq == 0 for parcel in taken)

    with_caller(town, attack)


def test_nothing_is_pushed_to_a_revoked_peer_over_a_connection_that_stands(town):
    async def main():
        a, b = town.peers("ab")
        async with living(a, b):
            await until(lambda: "b" in a.contacts and a.contacts["b"].sent > 3)
            town.revoke("b", "a")  # b itself is not told, and goes on listening
            await until(lambda: "revoked" in a.contacts["b"].trouble)
            heard = json.loads(b.status())["messages_received"]
            await goes_on(a, 20)
            assert json.loads(b.status())["messages_received"] == heard
            assert "revoked" in refused(a)  # b still calls

    asyncio.run(main())


def two_of_which_b_expires(town):
    """Peers a and b, and how to let the certificate of b end, but not that of a."""
    town.issue("b", days=1)
    later = SimpleNamespace(time=lambda: time.time() + 2 * DAY)
    return *town.peers("ab", **PATIENT), later


def test_nothing_is_pushed_to_an_expired_peer_over_a_connection_that_stands(town, monkeypatch):
    async def main():
        a, b, later = two_of_which_b_expires(town)
        async with living(a, b):
            await until(lambda: "b" in a.contacts and a.contacts["b"].sent > 3)
            monkeypatch.setattr(identity, "time", later)
            await until(lambda: "not believed: the certificate of 'b' expired" in a.contacts["b"].trouble, 30)
            heard, sent = json.loads(b.status())["messages_received"], a.contacts["b"].sent
            await goes_on(a, 20)
            assert json.loads(b.status())["messages_received"] == heard
            assert a.contacts["b"].sent == sent
            monkeypatch.undo()
            await until(lambda: a.contacts["b"].sent > sent)  # a clock that was wrong, say
            assert not a.contacts["b"].trouble

    asyncio.run(main())


@pytest.mark.parametrize("expires", [False, True])
def test_what_one_has_taught_is_not_left_to_an_expired_peer(town, monkeypatch, expires):
    async def main():
        a, b, later = two_of_which_b_expires(town)
        async with living(b):
            async with living(a):
                await until(lambda: "b" in a.contacts and a.contacts["b"].sent > 3 and has_letters(b, "a"))
                await goes_on(a, 50)
                if expires:
                    monkeypatch.setattr(identity, "time", later)
            await goes_on(b)
            assert set(b.legacies.kept) == (set() if expires else {"a"})
            monkeypatch.undo()

    asyncio.run(main())


def test_one_whose_own_certificate_has_expired_sends_no_letters_to_be_refused(town, monkeypatch):
    monkeypatch.setattr(post, "PAUSE", 0.0)

    async def main():
        a, b, later = two_of_which_b_expires(town)
        async with living(a, b):
            await until(lambda: "a" in b.contacts and b.contacts["a"].sent > 3)
            with monkeypatch.context() as patch:
                patch.setattr(identity, "time", later)
                await until(lambda: "'b', our own, has expired" in b.contacts["a"].trouble, 30)
                before = refused(a).get("expired", 0)
                await goes_on(b, 20)
                assert refused(a).get("expired", 0) == before

    asyncio.run(main())


def test_a_revoked_peer_is_not_even_greeted_again(town):
    async def main():
        a, b = town.peers("ab")
        town.revoke("a", "b")
        async with living(a, b):
            await until(lambda: "revoked" in b.trouble.get("join", ""))
            await goes_on(b)
            assert not b.contacts

    asyncio.run(main())


def test_nobody_speaks_in_anothers_name(town):
    """The certificate is b's, the envelope says c."""

    async def attack(peer, call):
        messages = {
            "Push": encode_letter(letter("c", peer)),
            "Hello": encode_hello(Hello("c", "127.0.0.1:9", 1000, bytes(32), peer.charter.text())),
            "Leave": encode_notice(Notice("c", 1000)),
            "Status": encode_notice(Notice("c")),
            "Stop": encode_notice(Notice("a")),
            "Statistics": encode_statistics(Statistics("c")),
        }
        assert set(messages) == set(METHODS)
        for method, message in messages.items():
            assert await call.code(method, message) is CODE.INVALID_ARGUMENT, method
        assert refused(peer) == {"name": len(messages)}
        assert peer.members.known("c") is None

    with_caller(town, attack)


def test_a_name_in_the_members_says_nothing_about_who_speaks(town):
    """A letter of b with a line of c is hearsay of c: it cannot end c's incarnation."""

    async def attack(peer, call):
        line = Member("c", "127.0.0.1:9", 5000, 1)
        await call("Push", encode_letter(letter("b", peer, members=(line,))))
        assert peer.members.accept("c", 4000)

    with_caller(town, attack)


def test_only_the_peer_itself_may_stop_it(town):
    async def main():
        peer = town.peer("a")
        own, other = (Caller(peer, town.identity(name).channel_credentials()) for name in "ab")
        task = asyncio.create_task(peer.live())
        async with own, other:
            await until(lambda: peer.ticks > 0)
            ack = decode_ack(await other("Stop", encode_notice(Notice("b"))))
            assert ack.status is Status.REFUSED
            assert "b" in ack.text
            assert refused(peer) == {"name": 1}
            await goes_on(peer)
            assert not task.done()
            assert decode_ack(await own("Stop", encode_notice(Notice("a")))).status is Status.OK
            await asyncio.wait_for(task, 20)

    asyncio.run(main())


def test_a_peer_answers_a_greeting_with_a_signature_over_the_greeters_nonce(town):
    async def attack(peer, call):
        hello = Hello("b", "127.0.0.1:9", 1000, b"n" * 32, peer.charter.text())
        reply = decode_hello_reply(await call("Hello", encode_hello(hello)))
        assert reply.accepted
        from gadget_svm.peers.post import signed_part

        said = signed_part(b"n" * 32, "a", reply.incarnation, reply.charter)
        peer.verifier.check_signature(reply.certificate, "a", said, reply.signature)
        with pytest.raises(identity.Refused):
            peer.verifier.check_signature(reply.certificate, "a", said + b"!", reply.signature)

    with_caller(town, attack)


# What they say


def test_letters_of_another_run_are_not_read_further(town):
    async def attack(peer, call):
        taken = absorbed(peer)
        ack = decode_ack(await call("Push", encode_letter(letter("b", peer, run=b"another run 1234"))))
        assert ack.status is Status.WRONG_RUN
        assert refused(peer) == {"run": 1}
        await goes_on(peer)
        assert not taken
        assert peer.members.known("b") is None

    with_caller(town, attack)


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_replayed_and_reordered_letters_are_not_used_twice(town, algorithm):
    async def attack(peer, call):
        taken, later = absorbed(peer), encode_letter(letter("b", peer, seq=5))
        sent = [later, later, encode_letter(letter("b", peer, seq=3)), later, encode_letter(letter("b", peer, seq=6))]
        found = []
        for data in sent:
            found.append(decode_ack(await call("Push", data)).status)
            await goes_on(peer, 2)
        again = Status.REPEATED
        assert found == [Status.OK, again, again, again, Status.OK]
        assert refused(peer) == {"sequence": 3}
        assert [parcel.seq for parcel in taken] == [5, 6]

    with_caller(town, attack, algorithm=algorithm)


def test_an_old_incarnations_letters_are_over(town):
    async def attack(peer, call):
        taken = absorbed(peer)
        await call("Push", encode_letter(letter("b", peer, incarnation=1000, seq=7)))
        await call("Push", encode_letter(letter("b", peer, incarnation=1001, seq=0)))
        await goes_on(peer, 2)
        old = decode_ack(await call("Push", encode_letter(letter("b", peer, incarnation=1000, seq=8))))
        assert old.status is Status.UNKNOWN
        assert "1000" in old.text
        assert refused(peer) == {"incarnation": 1}
        hello = Hello("b", "127.0.0.1:9", 1000, bytes(32), peer.charter.text())
        assert not decode_hello_reply(await call("Hello", encode_hello(hello))).accepted
        await call("Leave", encode_notice(Notice("b", 1000)))
        assert peer.members.known("b").state is not State.LEFT  # an old goodbye is over, too
        await goes_on(peer)
        assert all(parcel.seq != 8 for parcel in taken)

    with_caller(town, attack)


@pytest.mark.parametrize("heard", ["letter", "membership"])
def test_a_letter_that_waits_is_dropped_when_its_sender_began_anew(town, heard):
    """Its number would hide all letters of the new incarnation up to it."""
    peer = town.peer("a")
    peer.received(letter("b", peer, incarnation=1000, seq=90_000), "b")
    assert peer.mailbox.waiting["b"].seq == 90_000
    if heard == "letter":
        peer.received(letter("b", peer, incarnation=1001, vector=None), "b")
    else:
        asyncio.run(peer._apply(Changes(renewed=["b"])))
    assert not peer.mailbox.waiting
    peer.received(letter("b", peer, incarnation=1001, seq=0), "b")
    assert peer.mailbox.waiting["b"].seq == 0


def test_a_letter_to_a_former_incarnation_or_to_another_is_not_used(town):
    async def attack(peer, call):
        taken = absorbed(peer)
        for changes in ({"receiver_incarnation": 1}, {"receiver": "c"}):
            ack = decode_ack(await call("Push", encode_letter(letter("b", peer, **changes))))
            assert ack.status is Status.UNKNOWN
        await goes_on(peer)
        assert not taken
        assert refused(peer) == {"incarnation": 2}

    with_caller(town, attack)


def patched(data: bytes, old: float, new: float) -> bytes:
    assert struct.pack("<d", old) in data
    return data.replace(struct.pack("<d", old), struct.pack("<d", new))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_numbers_that_are_none_never_reach_the_weights(town, value):
    async def attack(peer, call):
        taken = absorbed(peer)
        whole = letter("b", peer, vector=np.full(peer.dimension, 1.5), weight=1.25, note=1.125)
        for old in (1.5, 1.25, 1.125, 30.0):  # the vector, the weight, the note, a member's rows
            assert await call.code("Push", patched(encode_letter(whole), old, value)) is CODE.INVALID_ARGUMENT
        await goes_on(peer)
        assert not taken
        assert sum(refused(peer).values()) == 4
        assert refused(peer).keys() <= {"not-finite", "too-large"}

    with_caller(town, attack)


@pytest.mark.parametrize("changes", [{"weight": 0.0}, {"weight": -1.0}, {"note": -1.0}, {"note": None}])
def test_a_penalty_that_is_none_is_garbage(town, changes):
    async def attack(peer, call):
        taken = absorbed(peer)
        ack = decode_ack(await call("Push", encode_letter(letter("b", peer, **changes))))
        assert ack.status is Status.MALFORMED
        await goes_on(peer)
        assert not taken
        assert refused(peer) == {"garbage": 1}

    with_caller(town, attack)


def test_vectors_of_another_length_are_refused(town):
    async def attack(peer, call):
        taken = absorbed(peer)
        for size in (0, 1, peer.dimension - 1, peer.dimension + 1, 2 * peer.dimension):
            data = encode_letter(letter("b", peer, vector=np.ones(size)))
            assert await call.code("Push", data) is CODE.INVALID_ARGUMENT
        await goes_on(peer)
        assert not taken
        assert refused(peer) == {"dimension": 5}

    with_caller(town, attack)


def test_garbage_to_every_method(town):
    async def attack(peer, call):
        rng = np.random.default_rng(3)
        pieces = [rng.bytes(int(size)) for size in rng.integers(1, 3000, 12)]
        pieces += [b"\xff" * 500, b"\x0a" * 500, encode_letter(letter("b", peer))[:-3]]
        for method in METHODS:
            for piece in pieces:
                assert await call.code(method, piece) is CODE.INVALID_ARGUMENT
        assert sum(refused(peer).values()) == len(METHODS) * len(pieces)
        assert await call.code("Sudo", b"") is CODE.UNIMPLEMENTED
        assert await call.code("Push", encode_letter(letter("b", peer))) is CODE.OK

    with_caller(town, attack)


# Too much


def resident() -> int:
    """Bytes of memory in use."""
    text = Path("/proc/self/statm")
    if not text.exists():
        pytest.skip("memory is read from /proc")
    return int(text.read_text().split()[1]) * 4096


async def peak(until_done: asyncio.Task) -> int:
    """The most memory in use while something goes on."""
    most = 0
    while not until_done.done():
        most = max(most, resident())
        await asyncio.sleep(0.005)
    await until_done
    return most


HUGE = """
import sys, grpc
target, name, method, size = sys.argv[1:5]
ca, key, cert = (open(path, "rb").read() for path in sys.argv[5:])
options = [("grpc.max_send_message_length", -1), ("grpc.ssl_target_name_override", name)]
with grpc.secure_channel(target, grpc.ssl_channel_credentials(ca, key, cert), options) as channel:
    try:
        channel.unary_unary(method)(bytes(int(size)), timeout=120)
    except grpc.RpcError as error:
        print(error.code().name)
"""


def test_a_message_of_a_gigabyte_is_refused_unread(town):
    """By a process of its own, so that only the peer's memory is seen."""
    files = town.files("b")

    async def send(peer, size):
        places = [str(files[key]) for key in ("ca", "key", "cert")]
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-c", HUGE, peer.address, "a", f"/{SERVICE}/Push", str(size), *places,
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        return (await child.communicate())[0].decode().strip()

    async def attack(peer, _):
        before, ticks = resident(), peer.ticks
        sending = asyncio.create_task(send(peer, 1 << 30))
        most = await peak(sending)
        assert sending.result() == "RESOURCE_EXHAUSTED"
        assert refused(peer) == {"too-large": 1}
        assert most - before < 128 << 20
        assert peer.ticks > ticks  # it learned meanwhile

    with_caller(town, attack)


def test_a_message_a_little_too_large_is_refused_before_it_is_decoded(town):
    async def attack(peer, call):
        assert await call.code("Push", bytes(900_000)) is CODE.INVALID_ARGUMENT
        assert refused(peer) == {"too-large": 1}

    with_caller(town, attack)


def test_a_flood_is_cut_off_and_keeps_nobody_else_out(town):
    """b sends as fast as it can; c, a neighbour, is heard all the while."""

    async def main():
        a, c = town.peers("ac", message_rate=150.0, burst=150, **PATIENT)
        async with living(a, c):
            await until(lambda: "c" in a.mailbox.heard and a.mailbox.heard["c"].letters > 5)
            taken, before = absorbed(a), resident()
            callers = [Caller(a, town.identity("b").channel_credentials()) for _ in range(4)]
            data = [encode_letter(letter("b", a, seq=seq)) for seq in range(400)]
            heard = a.mailbox.heard["c"].letters

            async def flood():
                answers = []
                while refused(a).get("rate", 0) < 200:  # a slow machine needs several rounds to get there
                    calls = (caller.code("Push", piece) for caller in callers for piece in data)
                    answers += await asyncio.gather(*calls)
                assert CODE.RESOURCE_EXHAUSTED in answers

            most = await peak(asyncio.create_task(flood()))
            for caller in callers:
                await caller.channel.close()
            assert most - before < 256 << 20  # the callers are in this process, too
            assert len(a.mailbox.waiting) <= 2
            assert a.mailbox.heard["c"].letters > heard
            assert sum(parcel.vector.nbytes for parcel in taken[-1:]) == 8 * a.dimension
            goal = a.mailbox.heard["c"].letters + 10
            await until(lambda: a.mailbox.heard["c"].letters >= goal)
            await goes_on(a)

    asyncio.run(main())


def test_calls_that_never_end_keep_nobody_else_out(town):
    """b opens more calls than are taken at a time and sends nothing in them."""

    async def main():
        a, c = town.peers("ac", **PATIENT)
        async with living(a, c):
            await until(lambda: "c" in a.mailbox.heard and a.mailbox.heard["c"].letters > 5)
            callers = [Caller(a, town.identity("b").channel_credentials()) for _ in range(CALLS // 32 + 1)]
            held = [caller.channel.stream_unary(f"/{SERVICE}/Push")() for caller in callers for _ in range(32)]
            await asyncio.gather(*(call.wait_for_connection() for call in held), return_exceptions=True)
            await until(lambda: refused(a).get("busy", 0) >= len(held) - CALLS_EACH)
            goal = a.mailbox.heard["c"].letters + 20
            await until(lambda: a.mailbox.heard["c"].letters >= goal)
            assert sum(not call.done() for call in held) <= CALLS_EACH
            for caller in callers:
                await caller.channel.close()
            await goes_on(a)

    asyncio.run(main())


def test_invented_members_do_not_displace_those_who_spoke_nor_fill_memory(town):
    async def main():
        a, c = town.peers("ac", members=20)
        async with living(a, c), Caller(a, town.identity("b").channel_credentials()) as call:
            await until(lambda: "c" in a.mailbox.heard)
            for k in range(20):
                crowd = tuple(Member(f"x{k}-{i}", "127.0.0.1:9", 1000, 1) for i in range(31))
                await call("Push", encode_letter(letter("b", a, vector=None, members=crowd)))
            assert len(a.members.alive()) <= 20
            assert {"b", "c"} & set(a.members.alive()) >= {"c"}
            await goes_on(a)

    asyncio.run(main())


# Before anything: a peer's own files


def break_missing(_, files):
    files["cert"].unlink()


def break_expired(town, _):
    certs.issue(town.folder / "ca", "a", days=30, now=time.time() - 31 * DAY, overwrite=True)


def break_other_key(town, files):
    files["key"].write_bytes(town.files("b")["key"].read_bytes())


def break_garbage_key(_, files):
    files["key"].write_text("not a key")


def break_others_pair(town, files):
    for kind in ("cert", "key"):
        files[kind].write_bytes(town.files("b")[kind].read_bytes())


def break_no_list(_, files):
    files["revoked"].unlink()


def break_revoked(town, _):
    town.revoke("a", "a")


def break_other_authority(town, files):
    elsewhere = Town(town.folder / "elsewhere")
    files["ca"].write_bytes(elsewhere.files("a")["ca"].read_bytes())


@pytest.mark.parametrize(
    ("broken", "words"),
    [
        (break_missing, r"a\.pem .*does not exist"),
        (break_expired, "expired"),
        (break_other_key, "is not the key of"),
        (break_garbage_key, "no private key"),
        (break_others_pair, "certificate of 'b', but the peer is called 'a'"),
        (break_no_list, r"revoked\.pem .*does not exist"),
        (break_revoked, "is revoked"),
        (break_other_authority, "not issued by the authority"),
    ],
)
def test_without_a_usable_certificate_a_peer_does_not_start(town, broken, words):
    config = town.config("a")
    broken(town, town.files("a"))
    from gadget_svm.peers.peer import Peer

    with pytest.raises(IdentityError, match=words):
        Peer(config)


# Other terms


TERMS = {
    "run": ({"run": "spring"}, {"run": "autumn"}, ["'spring'", "'autumn'"]),
    "lam": ({"lam": 0.01}, {"lam": 0.02}, ["lam = 0.01", "lam = 0.02"]),
    "algorithm": ({"algorithm": "pdmm"}, {"algorithm": "gadget"}, ["algorithm 'pdmm'", "algorithm 'gadget'"]),
    "intercept": ({"intercept": True}, {"intercept": False}, ["intercept = True", "intercept = False"]),
    "scaling": ({}, {"scaling": "max-abs", "sites": 2}, ["scaling 'none'", "scaling 'max-abs'"]),
    "sites": (
        {"scaling": "deviation", "sites": 1},
        {"scaling": "deviation", "sites": 3},
        ["sites = 1", "sites = 3"],
    ),
    "features": ({"features": 12}, {"features": 13}, ["12 features", "13 features"]),
    "classes": ({"classes": [-1, 1]}, {"classes": [1, -1]}, ["the classes -1.0, 1.0", "the classes 1.0, -1.0"]),
    "more classes": ({}, {"classes": [-1, 0, 1]}, ["the classes -1.0, 1.0", "the classes -1.0, 0.0, 1.0"]),
}


@pytest.mark.parametrize("term", [*TERMS, "names"])
def test_peers_of_other_terms_part_with_a_sentence(town, term):
    async def main():
        if term == "names":
            mine, theirs = (csv_site(town, name, columns) for name, columns in (("a", "age,size"), ("b", "size,age")))
            words = ["feature names with the hash"]
        else:
            mine, theirs, words = TERMS[term]
        a = town.peer("a", **mine)
        b = town.peer("b", join=(a.address,), **theirs)
        async with living(a):
            with pytest.raises(PeerError) as caught:
                await asyncio.wait_for(b.live(), 30)
            for word in ("a has", "b has", *words, a.address):
                assert word in str(caught.value)
            assert refused(a)["run"] >= 1
            assert "b has" in a.trouble["terms"]
            assert "b" not in a.members.alive()
            await goes_on(a)
            assert not a.mailbox.heard

    asyncio.run(main())


def csv_site(town, name, columns):
    X, y = rows(d=2)
    path = town.folder / f"{name}.csv"
    lines = [f"{columns},label", *(f"{u},{v},{label}" for (u, v), label in zip(X.toarray(), y, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return {"train": str(path), "features": 2}


def test_one_seed_of_other_terms_does_not_end_a_peer_that_has_company(town):
    async def main():
        odd, a = town.peer("odd", lam=0.02), town.peer("a")
        b = town.peer("b", join=(a.address, odd.address))
        async with living(odd, a):
            task = asyncio.create_task(b.live())
            await until(lambda: task.done() or ("a" in b.mailbox.heard and "terms" in b.trouble), 60)
            assert not task.done()
            await goes_on(b)
            b.stop("the test is over")
            await task

    asyncio.run(main())


def test_terms_that_are_no_terms_are_declined(town):
    async def attack(peer, call):
        for terms in ("", "[]", "{}", "[" * 60_000, peer.charter.text().replace("0.01", "1e999")):
            hello = Hello("b", "127.0.0.1:9", 1000, bytes(32), terms)
            reply = decode_hello_reply(await call("Hello", encode_hello(hello)))
            assert not reply.accepted
            assert reply.text
        assert refused(peer) == {"run": 5}
        assert peer.members.known("b") is None

    with_caller(town, attack)


def test_a_port_in_use_is_named(town):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        peer = town.peer("a", listen=place, address=f"127.0.0.1:{free_port()}")
        with pytest.raises(ListenError, match=place):
            asyncio.run(peer.live())


# Names that somebody made up


def invented(beat: int, number: int = 60) -> list[tuple[Member, ...]]:
    """Views of members that are nowhere, each with a line of the liar's own, as of a beat."""
    lines = [Member(f"x{i}", f"127.0.0.1:{9 + i % 3}", 1000, beat, rows=30.0, slack=-1.0) for i in range(number)]
    me = Member("liar", "127.0.0.1:9", 1000, beat, rows=30.0, slack=-1.0)
    return [(me, *lines[i : i + 30]) for i in range(0, number, 30)]


async def lie(town: Town, *peers):
    """Greet peers again and again, with members of which the beats advance: to them these are all alive."""
    beat = 0
    async with contextlib.AsyncExitStack() as stack:
        credentials = town.identity("liar").channel_credentials()
        calls = [await stack.enter_async_context(Caller(peer, credentials)) for peer in peers]
        while True:
            beat += 1
            for view in invented(beat):
                for peer, call in zip(peers, calls, strict=True):
                    hello = Hello("liar", "127.0.0.1:9", 1000, bytes(32), peer.charter.text(), False, view)
                    await call.code("Hello", encode_hello(hello))
            await asyncio.sleep(0.1)


def has_letters(peer, *senders: str) -> bool:
    return all(name in peer.mailbox.heard and peer.mailbox.heard[name].letters for name in senders)


def test_invented_members_displace_no_neighbour_and_keep_no_newcomer_out(town):
    async def main():
        *old, late = town.peers("abcd", **PATIENT)
        async with living(*old):
            await until(lambda: all(len(peer.contacts) == 2 for peer in old))
            flood = asyncio.create_task(lie(town, *old, late))
            try:
                await until(lambda: all(len(peer.members.alive()) > 60 for peer in old))
                for peer in old:
                    await goes_on(peer)
                    assert set("abc") - {peer.name} <= set(peer.contacts) <= {*"abc", "liar"}
                async with living(late):
                    await until(lambda: len(late.members.alive()) > 60)
                    everybody = [*old, late]
                    await until(lambda: all(set("abcd") - {p.name} <= set(p.contacts) for p in everybody))
                    await until(lambda: has_letters(late, *"abc"))
                    assert all(set(peer.contacts) <= {*"abcd", "liar"} for peer in everybody)
            finally:
                flood.cancel()
                await asyncio.gather(flood, return_exceptions=True)

    asyncio.run(main())


def test_one_known_by_hearsay_is_called_and_a_neighbour_once_it_has_answered(town):
    """Nobody joins anybody; a is told of b, of one who is nowhere, and of one where b is whose name b has not."""

    async def main():
        a, b = town.peer("a", rows(seed=0)), town.peer("b", rows(seed=1))
        async with living(a, b):
            told = (b.members.me, Member("x", "127.0.0.1:9", 1000, 1), Member("y", b.address, 1000, 1))
            for member in told:
                a.members.hear(member, direct=False)
            await until(lambda: {"x", "y"} <= a.calls.strangers._in_vain.keys())
            await until(lambda: set(a.contacts) == {"b"} and set(b.contacts) == {"a"})
            await until(lambda: has_letters(a, "b") and has_letters(b, "a"))
            assert {"x", "y"} <= set(a.members.alive())
            assert a._chosen == {"b"}
            assert a.members.met() == ["b"]

    asyncio.run(main())


def test_a_seed_is_called_though_somebody_is_said_to_be_at_its_address(town):
    async def main():
        a, b = town.peers("ab", **PATIENT)
        b.members.hear(Member("x", a.address, 1000, 1), direct=False)
        async with living(a, b):
            await until(lambda: "a" in b.contacts)

    asyncio.run(main())
