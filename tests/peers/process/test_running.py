"""A peer from its files: it learns, leaves on request, and continues after a restart; what is wrong is one message."""

import asyncio
import socket

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("aiohttp")

from gadget_svm.estimator.model_file import load_model
from gadget_svm.peers.process import config
from gadget_svm.peers.process.config import ConfigError
from gadget_svm.peers.process.running import BrokenError, make_host, run_peer
from gadget_svm.study.study import Study
from support.peer_process_kit import until

STUDY = Study("test", 1e-2, 6, (-1.0, 1.0))


@pytest.fixture
def peer(certificates, tmp_path):
    """The configuration of a peer with rows of its own; sections may be changed."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(40, 6))
    rows = (
        f"{1 if x[0] > 0 else -1} " + " ".join(f"{j + 1}:{value:.6f}" for j, value in enumerate(x)) + "\n" for x in X
    )
    (tmp_path / "train.svm").write_text("".join(rows))
    (tmp_path / "study.toml").write_text("")

    def made(**sections):
        values = {
            "peer": {
                "address": "127.0.0.1:7", "listen": "127.0.0.1:17999", "study": tmp_path / "study.toml",
                "state": tmp_path / "state", "model": tmp_path / "model.safetensors",
            },
            "tls": certificates.paths("a"), "data": {"train": tmp_path / "train.svm"},
            "pace": {"tick": 0.01, "heartbeat": 0.05}, "log": {"level": "error"},
        }  # fmt: skip
        text = config.template("a", {key: {**value, **sections.get(key, {})} for key, value in values.items()})
        (tmp_path / "peer.toml").write_text(text)
        return config.load(tmp_path / "peer.toml")

    return made


def test_a_certificate_that_does_not_cover_the_address_is_a_warning_with_the_fix(peer, caplog):
    make_host(peer(), STUDY)
    assert not caplog.records
    make_host(peer(peer={"address": "10.0.0.9:7400"}), STUDY)
    [record] = caplog.records
    assert "a.pem does not cover the address 10.0.0.9:7400 (it is for a, localhost, 127.0.0.1)" in record.message
    assert "--overwrite --host localhost --host 127.0.0.1 --host 10.0.0.9'" in record.message


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_until_learned(own, ticks):
    """Run a peer until it has made so many ticks; its last status."""

    async def main():
        host = make_host(own, STUDY)
        task = asyncio.create_task(host.run())
        await until(lambda: task.done() or (host.port and host.status()["ticks"] >= ticks))
        found = {} if task.done() else host.status()
        host.stop("the test is over")
        await task
        return found

    return asyncio.run(main())


def test_a_peer_learns_leaves_and_continues(peer):
    own = peer(peer={"listen": f"127.0.0.1:{free_port()}"})
    first = run_until_learned(own, 20)
    assert load_model(own.peer.model).n_iter_ >= 20
    second = run_until_learned(own, first["ticks"] + 5)
    assert second["incarnation"] > first["incarnation"]
    assert second["ticks"] >= first["ticks"] + 5
    assert second["step_seconds"] > 0
    assert second["snapshots"] >= 1


def test_a_peer_stops_by_itself_with_0(peer):
    own = peer(peer={"listen": f"127.0.0.1:{free_port()}"}, pace={"stop_after_ticks": 5})
    assert run_peer(own, STUDY) == 0


def test_what_is_wrong_with_files_is_told_from_what_another_start_may_cure(peer):
    own = peer()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 17999))
        taken.listen()
        with pytest.raises(BrokenError, match=r"cannot listen on 127\.0\.0\.1:17999"):
            run_peer(own, STUDY)
    (own.peer.state / "state.0").write_bytes(b"old")
    with pytest.raises(ConfigError, match="older version of this program"):
        run_peer(own, STUDY)
    own.data.train.unlink()
    with pytest.raises(ConfigError, match="there is no file"):
        run_peer(own, STUDY)
