"""Peers as processes, over mTLS, gRPC and disks: a study that ends although one is killed, and what operators do.

How peers behave when messages, processes and disks fail is tested in the simulated world, which has the same nodes.
"""

import hashlib
import json
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("google.protobuf")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
pytest.importorskip("aiohttp")

from gadget_svm import load_model
from gadget_svm.authority import certificates
from gadget_svm.peers.process.config import load
from gadget_svm.peers.process.snapshot_store import SnapshotStore
from gadget_svm.peers.storage.ledger import Ledger
from gadget_svm.study.study_file import load_study
from support.real_peers import RealPeers, differing_rows, environment

GAP = 0.01
GADGET_GAP = 0.2
"""Of the objective to the optimum, with rows that differ from site to site."""


def certify_although_one_is_killed(peers, killed):
    """Run all until certified; kill one when it has a snapshot; check exit codes, files and the bound."""
    peers.start(until="certified")
    peers.wait_for([killed], lambda status: status["ticks"] > 0)
    before = peers.status(killed)
    peers.wait_for([killed], lambda status: status["snapshots"] > before["snapshots"] + 1)
    peers.kill(killed)
    peers.start(killed, until="certified")
    assert set(peers.ends().values()) == {0}
    live = [event["fields"] for event in peers.events(killed) if event["event"] == "live"]
    assert live[-1]["incarnation"] > before["incarnation"]
    assert live[-1]["ticks"] > 0, "it continued from its snapshot"
    certified_by_all(peers, GAP)


def certified_by_all(peers, gap):
    """Check that all have the same certified model of all rows, and that its bound holds."""
    assert len({hashlib.sha256(peers.model(name).read_bytes()).digest() for name in peers.names}) == 1
    path = peers.model(peers.names[0])
    model = load_model(path)
    assert model.study_["kind"] == "certified"
    assert sorted(model.sites_) == sorted(peers.names)
    assert model.study_["rows"] == sum(len(y) for _, y in peers.rows.values())
    best, found = peers.optimum(), peers.objective(path)
    assert found / best.objective - 1.0 <= model.gap_bound_ <= gap
    assert found >= best.bound * (1.0 - 1e-9)


def test_five_peers_one_of_them_killed_certify_one_model(tmp_path):
    with RealPeers(tmp_path, differing_rows(5), gap=GAP) as peers:
        certify_although_one_is_killed(peers, "site-3")


def test_five_peers_certify_adult(tmp_path, adult):
    place = np.random.default_rng(0).permutation(adult.X.shape[0]) % 5
    rows = {f"site-{i + 1}": (adult.X[place == i], adult.y[place == i]) for i in range(5)}
    with RealPeers(tmp_path, rows, lam=adult.lam, gap=GAP) as peers:
        certify_although_one_is_killed(peers, "site-1")


def test_ten_peers_certify_one_model(tmp_path):
    rows = differing_rows(10, rows=40, features=6)
    with RealPeers(
        tmp_path, rows, lam=0.1, gap=0.05, tick=0.1, heartbeat=0.5, suspect=5.0, dead=5.0, snapshot=9.0
    ) as peers:
        peers.start(until="certified")
        assert set(peers.ends().values()) == {0}, peers.report()
        certified_by_all(peers, 0.05)


def test_three_peers_learn_by_gadget(tmp_path):
    with RealPeers(tmp_path, differing_rows(3), lam=0.1, algorithm="gadget") as peers:
        best = peers.optimum().objective
        peers.start()
        peers.wait_for(peers.names, lambda status: len(neighbours(status)) == 2)
        peers.wait_for(peers.names, lambda status: abs((status["objective"] or 9.0) / best - 1.0) < GADGET_GAP)
        assert set(peers.terminate().values()) == {0}
        for name in peers.names:
            model = load_model(peers.model(name))
            assert (model.study_["kind"], model.gap_bound_) == ("current", None)
            assert peers.objective(peers.model(name)) <= (1.0 + GADGET_GAP) * best


def test_three_peers_of_a_private_study_finish_with_one_model_and_keep_their_ledgers(tmp_path):
    pytest.importorskip("dp_accounting")
    rows = differing_rows(3, rows=2000, features=6)
    budget = {"epsilon": 4.0, "delta": 1e-6, "clip": 4.0, "rounds": 40, "step_size": 3.0}
    with RealPeers(tmp_path, rows, algorithm="private", privacy=budget) as peers:
        study = load_study(peers.study)
        peers.start(until="finished")
        peers.wait_for(["site-2"], lambda status: status["privacy"]["rounds"] > 4)
        assert "gadget_peer_privacy_rounds_planned 40.0" in peers.get("site-1", "/metrics")[1]
        peers.kill("site-2")
        peers.start("site-2", until="finished")
        assert set(peers.ends().values()) == {0}, peers.report()
        assert len({peers.model(name).read_bytes() for name in peers.names}) == 1
        model = load_model(peers.model("site-1"))
        about = {key: model.study_[key] for key in ("kind", "epsilon", "delta", "rounds", "rows", "study_digest")}
        assert about == {
            "kind": "agreed", "epsilon": 4.0, "delta": 1e-6, "rounds": 40, "rows": 6000,
            "study_digest": study.digest.hex(),
        }  # fmt: skip
        assert (model.gap_bound_, sorted(model.sites_)) == (None, peers.names)
        X, y = (np.concatenate(parts) for parts in zip(*rows.values(), strict=True))
        assert model.score(X, y) > 0.7
        for name in peers.names:
            path = peers.folder / name / "ledger.json"
            assert Ledger.parse(path.read_text()).rounds(study.digest.hex()) == 40
        agreed = peers.model("site-1").read_bytes()
        peers.model("site-1").unlink()
        command = [sys.executable, "-m", "gadget_svm", "peer", "export", str(peers.toml("site-1"))]
        subprocess.run(command, check=True, env=environment())
        assert peers.model("site-1").read_bytes() == agreed
        ledger = peers.folder / "site-1" / "ledger.json"
        ledger.rename(ledger.with_suffix(".away"))
        peers.start("site-1", until="finished")
        assert peers.ends("site-1") == {"site-1": 1}
        assert "put the ledger back" in (peers.folder / "site-1.log").read_text()


@pytest.fixture(scope="module")
def network(tmp_path_factory):
    """Sites 1 and 2 learn; site 3 is not started."""
    with RealPeers(tmp_path_factory.mktemp("peers"), differing_rows(3)) as peers:
        peers.start("site-1", "site-2")
        peers.wait_for(["site-1", "site-2"], lambda status: status["neighbours"] and status["state"] == "learning")
        yield peers


def neighbours(status):
    return [each["name"] for each in status["neighbours"] if each["edge"] == "up"]


def test_status_health_and_metrics(network):
    command = [sys.executable, "-m", "gadget_svm", "peer", "status", str(network.toml("site-1")), "--json"]
    answer = subprocess.run(command, capture_output=True, text=True, check=True, env=environment()).stdout
    for status in (json.loads(answer), network.status("site-1")):
        assert (status["name"], status["rows"], status["study"]) == ("site-1", 120, "test")
        assert status["members"]["alive"] == 2
        assert [link["opened_by"] for link in status["links"]] in (["us"], ["them"])
        assert status["certificate_days_left"] > 1
    code, text = network.get("site-1", "/healthz")
    assert (code, json.loads(text)["name"]) == (200, "site-1")
    code, text = network.get("site-1", "/metrics")
    assert code == 200
    assert 'gadget_peer_members{state="alive"} 2.0' in text
    assert "gadget_peer_ticks_total" in text


def test_a_peer_with_another_study_is_refused_with_the_name_of_what_differs(network):
    text = network.study.read_text()
    other = network.folder / "other.toml"
    other.write_text(text.replace("lam = 0.01", "lam = 0.5"))
    assert load_study(other).lam == 0.5
    toml = network.toml("site-3")
    own = toml.read_text()
    toml.write_text(own.replace("../study.toml", "../other.toml"))
    try:
        network.start("site-3")
        assert network.ends("site-3") == {"site-3": 1}
    finally:
        toml.write_text(own)
    [reason] = {event["fields"]["reason"] for event in network.events("site-3") if event["event"] == "cannot go on"}
    assert "lam" in reason
    assert "0.5" in reason
    assert "0.01" in reason
    assert not network.model("site-3").exists()
    assert sum(status["refused"].get("study", 0) for status in map(network.status, ("site-1", "site-2"))) > 0


def test_the_older_process_stops_if_another_one_runs_with_a_copy_of_its_certificate(network):
    network.copy("site-2", "copy")
    network.start("copy")
    try:
        assert network.ends("site-2") == {"site-2": 1}
        [reason] = {event["fields"]["reason"] for event in network.events("site-2") if event["event"] == "cannot go on"}
        assert "another process runs as 'site-2'" in reason
        assert network.address("copy") in reason
    finally:
        network.terminate("copy")
        network.start("site-2")


def test_a_revoked_peer_is_cut_off_and_sigterm_leaves_a_snapshot(network):
    network.start("site-3")
    network.wait_for(["site-3"], lambda status: len(neighbours(status)) == 2 and status["ticks"] > 5)
    certificates.revoke(network.folder / "ca", "site-3")
    revoked = (network.folder / "ca" / "revoked.pem").read_bytes()
    for name in ("site-1", "site-2"):
        load(network.toml(name)).tls.revoked.write_bytes(revoked)
    network.wait_for(["site-3"], lambda status: not status["links"])
    network.wait_for(["site-1", "site-2"], lambda status: neighbours(status) in (["site-1"], ["site-2"]))
    for name in ("site-1", "site-2"):
        assert "revoked" in network.status(name)["refused"]
        assert network.status(name)["untrusted"] == {"site-3": "revoked"}
        told = [event["event"] for event in network.events(name) if event.get("level") == "warning"]
        assert sum("the certificate of 'site-3' is revoked" in text for text in told) == 1
    assert network.terminate("site-3") == {"site-3": 0}
    config = load(network.toml("site-3"))
    store = SnapshotStore(config.peer.state)
    store.open()
    snapshot = store.load()
    store.close()
    assert snapshot is not None
    assert not list(config.peer.state.glob("*.damaged"))
