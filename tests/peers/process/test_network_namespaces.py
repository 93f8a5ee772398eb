"""Peers as processes on hosts of their own: sites that accept no connection, and packets that one direction loses."""

import pytest

pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
pytest.importorskip("aiohttp")

from gadget_svm import load_model
from support.peer_hosts import hosts_or_skip
from support.real_peers import RealPeers, differing_rows

GAP = 0.01


def openers(peers):
    """All links, as pairs of who opened it and to whom, that both ends agree on."""
    found = {}
    for name in peers.names:
        for link in peers.status(name)["links"]:
            pair = (name, link["name"]) if link["opened_by"] == "us" else (link["name"], name)
            found[pair] = found.get(pair, 0) + 1
    return {pair for pair, ends in found.items() if ends == 2}


def up(status):
    return {each["name"] for each in status["neighbours"] if each["edge"] == "up"}


def check_models(peers):
    """All have one certified model, which is as good as it says."""
    assert len({peers.model(name).read_bytes() for name in peers.names}) == 1
    model = load_model(peers.model(peers.names[0]))
    assert sorted(model.sites_) == peers.names
    found = peers.objective(peers.model(peers.names[0]))
    assert found / peers.optimum().objective - 1.0 <= model.gap_bound_ <= GAP


@pytest.mark.parametrize(
    "closed",
    [
        {"site-3": "outbound", "site-4": "refusing", "site-5": "silent"},
        {"site-2": "outbound", "site-3": "outbound"},
    ],
    ids=["three-of-five", "two-of-three"],
)
def test_sites_that_accept_no_connection_learn_with_the_others(tmp_path, closed):
    rows = differing_rows(5 if "site-5" in closed else 3)
    with hosts_or_skip(len(rows)) as hosts, RealPeers(tmp_path, rows, gap=GAP, hosts=hosts, closed=closed) as peers:
        peers.start()
        peers.wait_for(peers.names, lambda status: (status["certified"] or {}).get("saved"))
        check_models(peers)
        links = openers(peers)
        assert {name for _, name in links} <= set(rows) - set(closed)
        assert {name for name, _ in links} >= set(closed)
        for name in peers.names:
            status = peers.status(name)
            assert status["reachable"] == (name not in closed)
            assert up(status) == ({*rows} - {name} if name not in closed else {*rows} - {*closed})
        assert set(peers.terminate().values()) == {0}


def test_an_edge_of_which_one_direction_is_lost_ends_and_heals(tmp_path):
    rows = differing_rows(3)
    with hosts_or_skip(3) as hosts, RealPeers(tmp_path, rows, gap=GAP, hosts=hosts) as peers:
        peers.start()
        peers.wait_for(peers.names, lambda status: len(up(status)) == 2)
        hosts.lose(0, 1)
        peers.wait_for(["site-1", "site-2"], lambda status: up(status) == {"site-3"})
        assert len(up(peers.status("site-3"))) == 2
        assert all(peers.status(name)["members"]["alive"] == 3 for name in peers.names), "by way of the third"
        hosts.lose(0, 1, False)
        peers.wait_for(peers.names, lambda status: len(up(status)) == 2)
