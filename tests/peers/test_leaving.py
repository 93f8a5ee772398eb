"""What a site has taught stays when it leaves, goes when it withdraws, and never counts twice or in part."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
from gadget_svm.peers import leaving, legacies, vault
from gadget_svm.peers.calls import PeerError
from gadget_svm.peers.envelope import decode_ack, encode_letter, encode_notice
from gadget_svm.peers.learner import Parcel
from gadget_svm.peers.legacies import Bequest, Legacy, has_room, names_in
from gadget_svm.peers.messages import KEPT, Kept, Notice, Status
from gadget_svm.peers.overlay import node_id
from gadget_svm.peers.peer import WITHDRAW, Peer
from gadget_svm.peers.post import Contact, Line, Unreachable
from gadget_svm.peers.seeds import Seeds
from support.peer_kit import Caller, goes_on, letter, living, refused, until
from support.peer_sites import LAM, SITES, above, apart, excess

WITHIN = 0.01


def gap(names, *peers):
    """That of the worst of these peers' models."""
    return max(excess(names, peer.learner.model()[0]) for peer in peers)


def of(town, names, **values):
    """Peers of these names, of whom all know the first."""
    patient = {"suspect": 60.0, "dead": 60.0}  # where nobody is to be given up
    return town.peers(names, [SITES[name] for name in names], **{"lam": LAM, **patient, **values})


def again(peer):
    """The same peer, to be started once more."""
    return Peer(peer.config)


async def settled(names, *peers, within=WITHIN / 4):
    await until(lambda: gap(names, *peers) < within)


async def stays(names, *peers, ticks=300):
    """After hundreds of ticks, of which a few would do to go astray for good."""
    for peer in peers:
        await goes_on(peer, ticks)
    await settled(names, *peers, within=WITHIN)


async def without_a_word(peer):
    """Whatever `living` would do at the end: it is as if the process was killed, after its last save."""
    await peer.keeper.save()

    async def nothing():
        peer.study.close()
        for contact in peer.contacts.values():
            await contact.close()

    peer._leave = nothing


async def withdraws(peer, town):
    """As `gadget peer stop --withdraw` does it."""
    async with Caller(peer, town.identity(peer.name).channel_credentials()) as call:
        ack = decode_ack(await call("Stop", encode_notice(Notice(peer.name, 0, WITHDRAW))))
    assert ack.status is Status.OK


async def heir_of(name, *peers):
    """The one who keeps it, once the last letter is taken in: exactly one does."""
    await until(lambda: not any(peer.legacies.bequests for peer in peers))
    [found] = [peer for peer in peers if name in peer.legacies.kept]
    assert node_id(name) in found.learner.neighbours
    return found


def test_what_one_who_leaves_has_taught_stays(town):
    apart("abc", "ab")

    async def main():
        a, b, c = of(town, "abc")
        async with living(a, b):
            async with living(c):
                await settled("abc", a, b, c)
            await until(lambda: "c" not in a.contacts and "c" not in b.contacts)
            heir = await heir_of("c", a, b)
            assert json.loads(heir.status())["kept"] == ["c"]
            await stays("abc", a, b)
            assert heir is await heir_of("c", a, b)

    asyncio.run(main())


def test_what_one_who_withdraws_has_taught_goes(town):
    apart("abc", "ab")

    async def main():
        a, b, c = of(town, "abc")
        async with living(a, b):
            async with living(c):
                await settled("abc", a, b, c)
                await withdraws(c, town)
                await until(lambda: "c" not in a.contacts and "c" not in b.contacts)
            assert not a.legacies.kept
            assert not b.legacies.kept
            await settled("ab", a, b)
            await stays("ab", a, b)

    asyncio.run(main())


def test_what_one_who_crashes_has_taught_goes(town):
    async def main():
        a, b, c = of(town, "abc", suspect=1.0, dead=1.0)
        async with living(a, b):
            async with living(c):
                await settled("abc", a, b, c)
                await without_a_word(c)
            await until(lambda: "c" not in a.contacts and "c" not in b.contacts)
            await settled("ab", a, b)
            await stays("ab", a, b)

    asyncio.run(main())


@pytest.mark.parametrize("killed", [False, True])
def test_what_is_kept_survives_a_restart_of_the_heir(town, killed):
    """In good order, and killed: what is inherited is saved at once."""
    apart("abc", "ab", "a")

    async def main():
        a, b, c = of(town, "abc", suspect=1.0, dead=1.0)
        lives = {peer: living(peer) for peer in (a, b)}
        for life in lives.values():
            await life.__aenter__()
        async with living(c):
            await settled("abc", a, b, c)
        heir = await heir_of("c", a, b)
        other = b if heir is a else a
        await until(lambda: "c" in saved(heir).kept)
        if killed:
            heir.keeper.save = nothing_at_all
            await without_a_word(heir)
        await lives.pop(heir).__aexit__(None, None, None)
        await until(lambda: heir.name not in other.contacts)
        back = again(heir)
        async with living(back):
            await until(lambda: heir.name in other.contacts and other.name in back.contacts)
            await stays("abc", other, back, ticks=600)  # beyond the time in which nobody is given up
            assert await heir_of("c", other, back) is back
        await lives.pop(other).__aexit__(None, None, None)

    asyncio.run(main())


def left_as(peer):
    """Whom it is that was left by it."""
    return Kept(peer.name, peer.members.me.incarnation)


def saved(peer):
    """What it would go on from."""
    return vault.recall(peer.config.peer.state, peer.charter, peer.fingerprint)


async def nothing_at_all():
    """Not even saved."""


def test_one_who_comes_back_takes_its_edge_up_again(town):
    """Its rows count once, and as what they are: if it then withdraws, nothing of them stays."""
    apart("abc", "ab")

    async def main():
        a, b, c = of(town, "abc")
        async with living(a, b):
            async with living(c):
                await settled("abc", a, b, c)
            heir = await heir_of("c", a, b)
            assert c.learner.neighbours == [node_id(heir.name)]  # all others were dropped at both ends
            epoch = edge(heir, "c", "epoch")
            back = again(c)
            async with living(back):
                await until(lambda: {"a", "b"} <= set(back.contacts))
                await until(lambda: not a.legacies.kept and not b.legacies.kept)
                await stays("abc", a, b, back)
                assert edge(heir, "c", "epoch") == edge(back, heir.name, "epoch") == epoch  # never dropped
                await withdraws(back, town)
            await settled("ab", a, b)
            await stays("ab", a, b)

    asyncio.run(main())


def edge(peer, name, what):
    [at] = np.flatnonzero(peer.learner.block.links.target == node_id(name))
    return peer.learner.block.edge[what][at]


@pytest.mark.parametrize("late", [None, 0, 100])
def test_one_who_comes_back_with_nothing_begins_anew(town, monkeypatch, late):
    """--fresh: it has forgotten its edges, the heir has not. It counts incarnations by the clock, which may not have
    moved, or have been set back: then it outbids its former self."""

    async def main():
        a, b, c = of(town, "abc")
        async with living(a, b):
            async with living(c):
                await settled("abc", a, b, c)
            vault.set_aside(c.config.peer.state)
            with monkeypatch.context() as clock:
                if late is not None:
                    clock.setattr("time.time", lambda: float(c.members.me.incarnation - late))
                back = again(c)
            assert late is None or back.members.me.incarnation <= c.members.me.incarnation
            async with living(back):
                await settled("abc", a, b, back)
                await stays("abc", a, b, back)
            assert back.members.me.incarnation > c.members.me.incarnation

    asyncio.run(main())


# A legacy is of one incarnation


def test_a_legacy_does_not_revive_beside_a_later_one(town, monkeypatch):
    """c leaves to b, which stops too; c comes back and leaves to a. Then b comes back, which kept c."""
    apart("abc", "ab")

    async def main():
        a, b, c = of(town, "abc", suspect=1.0, dead=1.0)
        leaves_to(monkeypatch, "c", "b")
        async with living(a):
            async with living(b):
                async with living(c):
                    await settled("abc", a, b, c)
                assert await heir_of("c", a, b) is b
            assert "c" in saved(b).kept
            leaves_to(monkeypatch, "c", "a")
            back = again(c)
            async with living(back):
                await until(lambda: "c" in a.contacts and "a" in back.contacts and not a.legacies.kept)
                await settled("ac", a, back)
            assert await heir_of("c", a) is a
            late = again(b)
            async with living(late):
                await until(lambda: "b" in a.contacts and not late.legacies.kept)
                await goes_on(a, 300)
                await goes_on(late, 300)
                assert (await heir_of("c", a, late)).legacies.kept["c"].incarnation == back.members.me.incarnation
                # The pull is that of the optimum without b.
                assert gap("abc", a, late) < 0.5 * min(above("abc", of_all) for of_all in ("ab", "a"))

    asyncio.run(main())


@pytest.mark.parametrize("witness", ["stays", "restarts"])
def test_a_legacy_does_not_revive_after_its_owner_has_withdrawn(town, witness, monkeypatch):
    """c leaves to b, which is killed; c comes back and withdraws. Then b comes back, which kept c."""
    apart("abc", "ab")
    leaves_to(monkeypatch, "c", "b")

    async def main():
        a, b, c = of(town, "abc", suspect=1.0, dead=1.0)
        life = living(a)
        await life.__aenter__()
        async with living(b):
            async with living(c):
                await settled("abc", a, b, c)
            assert await heir_of("c", a, b) is b
            await without_a_word(b)
        back = again(c)
        async with living(back):
            await until(lambda: "c" in a.contacts and "a" in back.contacts)
            await withdraws(back, town)
            await until(lambda: "c" not in a.contacts)
        if witness == "restarts":
            await life.__aexit__(None, None, None)
            a = again(a)
            life = living(a)
            await life.__aenter__()
        late = again(b)
        assert "c" in saved(late).kept
        async with living(late):
            await until(lambda: "b" in a.contacts and not late.legacies.kept)
            await settled("ab", a, late)
            await stays("ab", a, late)
        await life.__aexit__(None, None, None)

    asyncio.run(main())


@pytest.mark.parametrize("taken_in", [True, False])
def test_a_goodbye_counts_for_the_incarnation_that_says_it(town, taken_in):
    """Of one whose legacy is here still: it came back and goes again between two ticks."""
    peer = town.peer("a")
    for said, stays_here in ((6, True), (7, False), (8, False)):
        legacy = Legacy(0, 7)
        peer.legacies.kept = {"c": legacy} if taken_in else {}
        peer.legacies.bequests = (
            {} if taken_in else {"c": Bequest(legacy, Parcel(node_id("c"), 1, np.zeros(12), 1.0, 1.0))}
        )
        peer.members.leave("c", 7)
        peer.left(Notice("c", said), "c")
        assert ("c" in {**peer.legacies.kept, **peer.legacies.bequests}) == stays_here
        assert peer.members.latest("c") == max(said, 7)
        assert not peer.members.accept("c", said)


# What is saved is a whole


def test_what_is_saved_before_the_last_letter_is_taken_in_is_without_the_legacy(town, monkeypatch):
    apart("abc", "ab")
    leaves_to(monkeypatch, "c", "b")

    async def main():
        a, b, c = of(town, "abc", suspect=1.0, dead=1.0)
        async with living(a):
            async with living(b):
                async with living(c):
                    await settled("abc", a, b, c)
                    b.drain = list  # it goes on, and hears nothing any more
                await b.keeper.save()
                await without_a_word(b)
                assert not saved(b).kept
            await until(lambda: "b" not in a.contacts)
            back = again(b)
            async with living(back):
                await until(lambda: "b" in a.contacts and "a" in back.contacts)
                await settled("ab", a, back)
                await stays("ab", a, back, ticks=600)

    asyncio.run(main())


def test_what_is_saved_after_it_is_with_the_legacy(town, monkeypatch):
    """Though it was saved in between, for another reason."""
    apart("abc", "ab")
    leaves_to(monkeypatch, "c", "b")

    async def main():
        a, b, c = of(town, "abc", suspect=1.0, dead=1.0)
        async with living(a):
            async with living(b):
                async with living(c):
                    await settled("abc", a, b, c)
                    b.drain = list
                await until(lambda: b.legacies.bequests or b.legacies.kept)
                b.unsaved = False
                await b.keeper.save()
                del b.drain
                await until(lambda: "c" in saved(b).kept)  # long before the next checkpoint
                b.keeper.save = nothing_at_all
                await without_a_word(b)
            await until(lambda: "b" not in a.contacts)
            back = again(b)
            async with living(back):
                await until(lambda: "b" in a.contacts and "a" in back.contacts)
                await stays("abc", a, back, ticks=600)

    asyncio.run(main())


def test_an_heir_that_withdraws_in_the_same_moment_has_the_legacy_as_a_whole(town, monkeypatch):
    apart("abc", "ab")
    leaves_to(monkeypatch, "c", "b")

    async def main():
        a, b, c = of(town, "abc", suspect=1.0, dead=1.0)
        async with living(a):
            async with living(b):
                async with living(c):
                    await settled("abc", a, b, c)
                    b.tend_links = nothing_at_all
                    b.drain = list
                del b.drain
                await withdraws(b, town)
            await until(lambda: "b" not in a.contacts)
            legacy(b, c)
            back = again(b)
            assert "c" in saved(back).kept
            async with living(back):
                await until(lambda: "b" in a.contacts and "a" in back.contacts)
                await settled("abc", a, back)
                await stays("abc", a, back)

    asyncio.run(main())


# One that was refused has learned nothing


def test_one_refused_for_its_terms_corrects_them_and_starts(town):
    """Though it has learned alone until it was refused."""

    async def main():
        a = town.peer("a", SITES["a"])
        b = town.peer("b", SITES["b"], join=(a.address,), lam=0.02)
        b.calls.to = after_ticks(b)
        async with living(a):
            with pytest.raises(PeerError, match="lam"):
                await b.live()
            right = town.peer("b", SITES["b"], join=(a.address,), lam=0.01)
            async with living(right):
                await until(lambda: "b" in a.contacts and "a" in right.contacts)
                assert right.members.me.incarnation > b.members.me.incarnation

    asyncio.run(main())


def test_one_refused_for_its_terms_keeps_what_it_had_learned_before(town):
    """Whoever is wrong: alone, it can go on."""

    async def main():
        a, b = town.peer("a", SITES["a"]), town.peer("b", SITES["b"], lam=0.02)
        async with living(b):
            await goes_on(b, 5)
        late = town.peer("b", SITES["b"], join=(a.address,), lam=0.02)
        late.calls.to = after_ticks(late)
        async with living(a):
            with pytest.raises(PeerError, match="lam"):
                await late.live()
        assert saved(late).learner["t"] >= b.ticks > 0

    asyncio.run(main())


def test_one_who_has_learned_with_others_is_not_stopped_by_a_guest_of_other_terms(town):
    async def main():
        a, b = of(town, "ab")
        async with living(a, b):
            await settled("ab", a, b)
        back, guest = again(a), town.peer("d", SITES["d"], lam=0.02)
        back.calls.seeds, guest.calls.agreed = Seeds([guest.address]), True  # so that it stays
        async with living(back, guest):
            await until(lambda: "lam" in back.trouble.get("terms", ""))
            await goes_on(back, 100)
            assert not guest.contacts

    asyncio.run(main())


def after_ticks(peer, ticks=3):
    """Its calls wait until it has learned for a while."""
    real = peer.calls.to

    async def call(address):
        await until(lambda: peer.ticks >= ticks)
        return await real(address)

    return call


def test_sites_stop_one_after_the_other_and_the_last_has_the_common_model(town):
    apart("abcd", "abc", "ab", "a")

    async def main():
        a, b, c, d = of(town, "abcd")
        async with living(a):
            async with living(b):
                async with living(c):
                    async with living(d):
                        await settled("abcd", a, b, c, d)
                    await stays("abcd", a, b, c, ticks=60)
                await stays("abcd", a, b, ticks=60)
            await stays("abcd", a)
            assert set(names_in(a.legacies.kept)) == {left_as(b), left_as(c), left_as(d)}
        assert set(saved(a).kept) == set(a.legacies.kept)

    asyncio.run(main())


def test_one_who_is_part_of_a_legacy_does_not_count_twice(town, monkeypatch):
    """c leaves to b, b to a, and c comes back without b: then a cannot keep b's any more, since c's is part of it."""
    apart("abc", "ac")
    leaves_to(monkeypatch, "c", "b")

    async def main():
        a, b, c = of(town, "abc", suspect=1.0, dead=1.0)
        async with living(a):
            async with living(b):
                async with living(c):
                    await settled("abc", a, b, c)
                assert await heir_of("c", a, b) is b
            assert (await heir_of("b", a)).legacies.kept["b"].others == (left_as(c),)
            back = again(c)
            async with living(back):
                await until(lambda: "c" in a.contacts and not a.legacies.kept)
                await settled("ac", a, back)
                await stays("ac", a, back, ticks=600)
                late = again(b)
                async with living(late):
                    await settled("abc", a, back, late)
                    assert not late.legacies.kept
                    await stays("abc", a, back, late)

    asyncio.run(main())


def leaves_to(monkeypatch, leaver, heir):
    """Whom else it might ask does not matter."""
    real = leaving._heirs
    chosen = {leaver: [heir]}
    monkeypatch.setattr(
        leaving, "_heirs", lambda peer: [n for n in chosen.get(peer.name, real(peer)) if n in peer.contacts]
    )


def test_an_heir_that_leaves_in_the_same_moment_has_heard_the_last_letter(town, monkeypatch):
    apart("abc", "ab", "a")
    leaves_to(monkeypatch, "c", "b")

    async def main():
        a, b, c = of(town, "abc")
        async with living(a):
            async with living(b):
                async with living(c):
                    await settled("abc", a, b, c)
                    await b.study.between_ticks.acquire()  # b has no tick any more
                assert "c" in b.legacies.bequests
                b.stop("at once")
                b.study.between_ticks.release()
            assert (await heir_of("b", a)).legacies.kept["b"].others == (left_as(c),)
            await stays("abc", a)

    asyncio.run(main())


@pytest.mark.parametrize("how", ["withdraws", "crashes"])
@pytest.mark.parametrize("heir", ["a", "b"])
def test_a_legacy_is_kept_whole_or_not_at_all(town, heir, how, monkeypatch):
    """c leaves, then b goes for good: what stays of c is the pull of all its rows, or nothing, and none of b's."""
    apart("abc", "ac", "ab", "a")
    leaves_to(monkeypatch, "c", heir)

    async def main():
        a, b, c = of(town, "abc", suspect=1.0, dead=1.0)
        async with living(a):
            async with living(b):
                async with living(c):
                    await settled("abc", a, b, c)
                await until(lambda: "c" not in a.contacts and "c" not in b.contacts)
                before = legacy(await heir_of("c", a, b), c)
                if how == "withdraws":
                    await withdraws(b, town)
                    await until(lambda: "b" not in a.contacts)
                else:
                    await without_a_word(b)
            await until(lambda: "b" not in a.contacts)
            if heir == "b":
                await settled("a", a)
                await stays("a", a)
                return
            await goes_on(a, 500)
            np.testing.assert_array_equal(legacy(await heir_of("c", a), c), before)
            # The pull is that of the optimum with b, so that it does not fit quite as well as c itself would.
            assert gap("ac", a) < 0.5 * min(above("ac", of_all) for of_all in ("abc", "a"))

    asyncio.run(main())


def legacy(heir, leaver):
    """The edge that is kept; it pulls as the leaver's rows did: v_c - n_c lam w_c = A z + rho w_c of its one edge."""
    mine, his = heir.learner, leaver.learner
    z, rho, w = edge(heir, leaver.name, "z"), edge(heir, leaver.name, "rho"), his.model()[0]
    y = np.where(his.label == 1, 1.0, -1.0)
    rows = his.X.T @ (his.duals[0] * y) - len(y) * LAM * w
    sign = 1.0 if mine.node < his.node else -1.0
    np.testing.assert_allclose(-(sign * z + rho * w), rows, atol=1e-6 * np.linalg.norm(rows))
    return z.copy()


def test_nothing_is_kept_of_one_whose_certificate_is_revoked_afterwards(town):
    """It must go, so what it taught goes too: at once where the list comes, and at the next start elsewhere."""

    async def main():
        a, b, c = of(town, "abc")
        async with living(a, b):
            async with living(c):
                await settled("abc", a, b, c)
            heir = await heir_of("c", a, b)
            assert heir.legacies.kept["c"].serial == town.identity("c").serial
            await until(lambda: "c" in saved(heir).kept)
            town.revoke("c", "a", "b")
            await until(lambda: not heir.legacies.kept)
            await settled("ab", a, b)
            await stays("ab", a, b)

    asyncio.run(main())


def test_at_a_restart_nothing_is_kept_of_one_whose_certificate_is_revoked(town):
    async def main():
        a, b = of(town, "ab", suspect=0.5, dead=0.5)
        async with living(a):
            async with living(b):
                await settled("ab", a, b)
            await until(lambda: "b" in a.legacies.kept)
        town.revoke("b", "a")
        back = again(a)
        async with living(back):
            await settled("a", back)
            assert not back.legacies.kept

    asyncio.run(main())


def test_when_all_stop_at_once_nobody_inherits_and_all_go_on_where_they_were(town):
    async def main():
        peers = of(town, "abc")
        async with living(*peers):
            await settled("abc", *peers)
            for peer in peers:
                peer.stop("all at once")
        assert not any(peer.legacies.kept for peer in peers)
        back = [again(peer) for peer in peers]
        async with living(*back):
            await until(lambda: all(len(peer.contacts) == 2 for peer in back))
            await stays("abc", *back)

    asyncio.run(main())


# Who may inherit


def test_an_heir_has_to_have_an_edge_and_room(town):
    async def main():
        a, b = of(town, "ab")
        async with living(a, b), Caller(a, town.identity("g").channel_credentials()) as call:
            await until(lambda: "b" in a.contacts and "a" in b.contacts and b.contacts["a"].sent)
            said = letter("g", a, last=True)
            assert decode_ack(await call("Push", encode_letter(said))).status is Status.REFUSED  # no neighbour of a's
            assert "g" in a.members.alive()  # it has not left by that
            await a.study.between_ticks.acquire()
            said = letter("b", a, last=True, kept=(Kept("c", 5),), incarnation=b.members.me.incarnation)
            full, double = {f"n{i}": Legacy(0, 1) for i in range(KEPT - 1)}, {"x": Legacy(0, 1, (Kept("c", 4),))}
            for kept, back in ((full, 0), (double, 0), ({}, 6)):  # no room; c is here already; c has been back since
                a.legacies.kept = kept
                a.members.remember("c", back)
                assert not a._inherits(said, "b", Parcel(node_id("b"), 0, said.vector, 1.0, 1.0))
            said = replace(said, kept=(Kept("c", 6),))
            assert a._inherits(said, "b", Parcel(node_id("b"), 1 << 20, said.vector, 1.0, 1.0))
            assert "b" not in a.members.alive()
            assert not a.legacies.kept
            a.study.between_ticks.release()
            await until(lambda: a.legacies.kept)
            assert a.legacies.kept == {"b": Legacy(town.identity("b").serial, said.incarnation, said.kept)}

    asyncio.run(main())


def test_a_legacy_counts_all_its_names():
    kept = {"a": Legacy(1, 2, (Kept("b", 3), Kept("c", 4))), "d": Legacy(2, 6, (Kept("c", 5),))}
    assert names_in(kept) == (("a", 2), ("b", 3), ("c", 5), ("d", 6))
    full = {"a": Legacy(1, 1, tuple(Kept(f"n{i}", 1) for i in range(KEPT - 3)))}
    assert has_room(full, [Kept("x", 1)])
    assert not has_room(full, [Kept("x", 1), Kept("y", 1)])


def deaf_to(name, peer):
    received = peer.received
    return lambda letter, who: peer._ack(who, Status.BUSY) if who == name else received(letter, who)


@pytest.mark.parametrize("hinders", ["silent", "refuses", "deaf", "mute"])
def test_one_who_finds_no_heir_leaves_all_the_same_and_says_why(town, hinders, monkeypatch, caplog):
    """And its state is as if nobody had been asked."""

    async def main():
        a, b, c = of(town, "abc")
        async with living(a, b):
            async with living(c):
                await settled("abc", a, b, c)
                if hinders == "silent":
                    c.discretion.allows = lambda *_: False  # nor is what it sent last the pull of all its rows
                for peer in (a, b):
                    if hinders == "refuses":
                        peer._inherits = lambda *_: False
                    if hinders == "deaf":
                        peer.received = deaf_to("c", peer)
                    if hinders == "mute":
                        monkeypatch.setattr(leaving, "_heirs", lambda _: [])
                before = None

                async def nobody(peer, real=leaving.hand_over):
                    nonlocal before
                    before = sorted(peer.learner.neighbours)
                    return await real(peer)

                monkeypatch.setitem(Peer._leave.__globals__, "hand_over", nobody)
            assert before == sorted(map(node_id, "ab"))
            assert sorted(c.learner.neighbours) == before
            assert not a.legacies.kept
            assert not b.legacies.kept
            await settled("ab", a, b)

    asyncio.run(main())
    said = next(record for record in caplog.records if "does not stay" in record.getMessage())  # by c, the first to go
    words = {"silent": "too much of a row", "refuses": "cannot keep", "deaf": "busy", "mute": "no neighbour"}
    assert said.levelname == "WARNING"
    assert words[hinders] in said.fields["why"]


def test_one_who_may_say_nothing_new_says_again_what_it_said(town):
    """At rest all last letters are the same, and may differ from what was sent by the change of a single row."""
    apart("ab", "a")
    sent = []

    def noted(real):
        return lambda name, vector: (sent.append(vector.copy()), real(name, vector))

    async def main():
        a, b = of(town, "ab")
        async with living(a):
            async with living(b):
                await settled("ab", a, b)
                await goes_on(b, 100)
                b.handed = noted(b.handed)
                await until(lambda: sent)
                b.discretion.allows = lambda *_: False
            assert await heir_of("b", a) is a
            assert any(np.array_equal(sent[-1], vector) for vector in sent[:-1])
            await stays("ab", a)

    asyncio.run(main())


def test_weights_that_are_not_what_they_are_made_of_are_worked_out_anew(town):
    async def main():
        a, b = of(town, "ab")
        async with living(a, b):
            await settled("ab", a, b)
            async with a.study.between_ticks:
                before = a.learner.block.flat[0].copy()
                a.learner.refresh()
                np.testing.assert_allclose(a.learner.block.flat[0], before, rtol=1e-9, atol=1e-12)
                a.learner.block.flat[0] += 3.0
            await stays("ab", a, b)

    asyncio.run(main())


def first_answer_lost(monkeypatch, leaver):
    """The first heir keeps what it is handed, and the leaver does not hear of it; who was asked, in turn."""
    asked = []

    async def unheard(contact, letter, real=Contact.hand):
        taken = await real(contact, letter)
        if letter.sender == leaver:
            assert taken
            asked.append(contact.name)
            if len(asked) == 1:
                raise Unreachable("no answer")
        return taken

    monkeypatch.setattr(Contact, "hand", unheard)
    return asked


def test_one_whose_answer_got_lost_is_no_heir(town, monkeypatch):
    """The leaver asks another one then, and only that one keeps what was taught."""
    apart("abc", "ab")

    async def main():
        a, b, c = of(town, "abc")
        async with living(a, b):
            async with living(c):
                await settled("abc", a, b, c)
                asked = first_answer_lost(monkeypatch, "c")
            assert len(asked) == 2
            await until(lambda: "c" not in a.contacts and "c" not in b.contacts)
            heir = await heir_of("c", a, b)
            assert heir.name == asked[1]
            await stays("abc", a, b)

    asyncio.run(main())


def test_of_two_who_keep_the_same_one_lets_go(town, monkeypatch):
    """Neither the answer of the first heir nor the goodbye to it arrives."""
    apart("abc", "ab")

    async def mute(line, method, notice, deadline=2.0, real=Line.notice):
        if method == "Leave" and notice.name == "c":
            raise Unreachable("no goodbye")
        return await real(line, method, notice, deadline)

    async def main():
        a, b, c = of(town, "abc")
        async with living(a, b):
            async with living(c):
                await settled("abc", a, b, c)
                first_answer_lost(monkeypatch, "c")
                monkeypatch.setattr(Line, "notice", mute)
            await until(lambda: "c" in a.legacies.kept and "c" in b.legacies.kept)
            await goes_on(a, 50)
            await goes_on(b, 50)
            assert a.legacies.kept == b.legacies.kept  # not at once
            monkeypatch.setattr(legacies, "SURE", 0.0)
            await until(lambda: "c" not in a.legacies.kept or "c" not in b.legacies.kept)
            await stays("abc", a, b)
            assert await heir_of("c", a, b) is a

    asyncio.run(main())


def test_with_running_sums_there_is_nothing_to_keep(town):
    async def main():
        a, b = of(town, "ab", algorithm="gadget")
        async with living(a):
            async with living(b):
                await until(lambda: "b" in a.contacts and "a" in b.contacts)
                await goes_on(b)
            await until(lambda: "b" not in a.contacts)
            assert not a.legacies.kept
            await goes_on(a)
            assert refused(a) == {}

    asyncio.run(main())
