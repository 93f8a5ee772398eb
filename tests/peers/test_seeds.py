"""Every address gets its turn, whatever else there is to call, and what others say of addresses takes no room."""

import asyncio

import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
from gadget_svm.peers import checkpoint
from gadget_svm.peers.calls import AT_ONCE
from gadget_svm.peers.member import Member
from gadget_svm.peers.membership import Changes
from gadget_svm.peers.peer import Peer
from gadget_svm.peers.seeds import CLAIMS, Seeds
from support.peer_kit import living, until


def places(count, host="10.0.0.1"):
    return [f"{host}:{1000 + i}" for i in range(count)]


def taken(seeds, rounds, most=AT_ONCE, missed=(), here=()):
    return [seeds.take(most, missed, here) for _ in range(rounds)]


def test_all_are_called_in_the_order_of_the_file_before_any_is_called_again():
    given = places(40)[::-1]
    first, second, third, fourth = taken(Seeds(given), 4)
    assert [*first, *second, *third][:40] == given
    assert fourth == given[8:24]


@pytest.mark.parametrize("most", [AT_ONCE, 1])
def test_no_crowd_of_one_kind_hides_another(most):
    """Members that were lost, those of the last checkpoint, and rumours that always are new."""
    seeds = Seeds(places(3, "given"))
    seeds.former = tuple(places(500, "former"))
    called = set()
    for i in range(60):
        for j in range(20):
            seeds.claim(f"claimed:{1000 + 20 * i + j}")
        called.update(*taken(seeds, 1, most, missed=places(2, "missed")))
    assert called >= {*places(3, "given"), *places(2, "missed")}
    assert {address.partition(":")[0] for address in called} == {"given", "former", "missed", "claimed"}


def test_the_first_calls_are_to_addresses_of_the_file_also_after_a_restart():
    seeds = Seeds(places(2, "given"))
    seeds.former = tuple(places(500, "former"))
    [first] = taken(seeds, 1)
    assert first[0] == "given:1000"
    assert "given:1001" in first
    assert len(first) == AT_ONCE


def test_nobody_is_called_twice_at_once_nor_where_it_is_known_to_be_here():
    seeds = Seeds(places(3))
    seeds.former = tuple(places(5))
    seeds.claim(places(1)[0])
    [found] = taken(seeds, 1, missed=places(4), here=places(2))
    assert sorted(found) == places(5)[2:]


def test_a_peer_alone_finds_the_one_who_answers_behind_seventeen_who_do_not(town):
    async def main():
        there = town.peer("a")
        dead = [f"127.0.0.1:{port}" for port in range(1001, 1018)]  # before the other's in the alphabet as well
        alone = town.peer("b", join=(*dead, there.address))
        async with living(there, alone):
            await until(lambda: "a" in alone.members.met(), 30.0)

    asyncio.run(main())


def test_addresses_of_the_last_checkpoint_are_called(town):
    async def main():
        there, alone = town.peer("a"), town.peer("b")
        alone.go_on_from(None)
        await alone.keeper.save()
        found = checkpoint.load(alone.config.peer.state)
        dead = {f"x{port}": f"127.0.0.1:{port}" for port in range(1001, 1018)}
        checkpoint.save(
            alone.config.peer.state, found.arrays, {**found.about, "addresses": {**dead, "a": there.address}}
        )
        again = Peer(alone.config)
        async with living(there, again):
            await until(lambda: "a" in again.members.met(), 30.0)

    asyncio.run(main())


def test_rumours_of_ones_own_name_take_no_room_and_push_nobody_out(town):
    peer = town.peer("a", join=("10.0.0.1:7400", "10.0.0.2:7400"))

    async def main():
        for i in range(1000):
            await peer._apply(Changes(impostor=Member("a", f"10.1.0.1:{1000 + i}", 5, 1)))

    asyncio.run(main())
    known = peer.calls.seeds.take(5000, (), ())
    assert {"10.0.0.1:7400", "10.0.0.2:7400", "10.1.0.1:1999"} <= set(known)
    assert len(known) == 2 + CLAIMS
    assert len(peer.calls.seeds._called) == len(known)
