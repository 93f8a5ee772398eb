"""The loop around a node: every effect is carried out and answered, in order, and every end is a clean one."""

import asyncio
import errno
import json
import logging
import os
import signal
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("aiohttp")
from prometheus_client.parser import text_string_to_metric_families

from gadget_svm.peers.events import (
    CredentialsChanged,
    Dial,
    Export,
    Finish,
    LinkDown,
    LinkUp,
    Received,
    Report,
    RunStep,
    Save,
    Saved,
    SaveFailed,
    Send,
    SetTimer,
    StepDone,
    StepFailed,
    StopRequested,
    TimerFired,
)
from gadget_svm.peers.process import config
from gadget_svm.peers.process import host as host_module
from gadget_svm.peers.process.control import UnreachableError, fetch_status, request_stop
from gadget_svm.peers.process.host import HostSettings, NodeFailedError, PeerHost
from gadget_svm.peers.process.snapshot_store import SnapshotError, SnapshotStore
from gadget_svm.peers.process.status_server import serve_status
from gadget_svm.peers.storage.snapshot import ModelDocument, Snapshot
from support.peer_process_kit import LIMITS, NotingNode, hello, push, until

SNAPSHOT = Snapshot({"w": np.arange(3.0)}, {"n": 1})
MODEL = ModelDocument("current", np.ones((1, 13)), np.ones(12), np.zeros(12), {})


@pytest.fixture
def make(certificates, tmp_path):
    """A host around a node, with the certificate of a name."""

    def made(node, name="a", export=id, folder=None, **settings):
        settings = HostSettings(**{"listen": "127.0.0.1:0", **settings})
        store = SnapshotStore(folder or tmp_path / name)
        return PeerHost(node, settings, LIMITS, certificates.of(name), store, export)

    return made


def run(host, scenario=None, **options):
    """Run a host beside a scenario, until it finishes."""

    async def main():
        async with asyncio.timeout(60):
            if scenario is None:
                await host.run(**options)
                return
            task = asyncio.create_task(host.run(**options))
            try:
                await scenario()
                host.stop("the test is over")
            finally:
                await task

    asyncio.run(main())


# Effects and their answers


def test_a_node_is_started_and_told_of_its_certificate_first_and_finishes(make, certificates):
    node = NotingNode(CredentialsChanged=[Finish("done")])
    run(make(node))
    started, credentials = node.events
    assert abs(started.wall_time - time.time()) < 60
    assert started.snapshot is None
    assert credentials == CredentialsChanged(certificates.of("a").expires)


def test_an_error_of_the_node_is_raised(make):
    with pytest.raises(NodeFailedError, match="superseded"):
        run(make(NotingNode(Started=[Finish("over", "superseded")])))


def test_a_step_runs_in_a_thread_and_its_result_or_error_comes_back(make, caplog):
    def after_steps(event, _):
        return [RunStep(lambda: 1 / 0)] if event.result == "result" else []

    def where():
        threads.append(threading.current_thread().name)
        return "result"

    threads = []
    node = NotingNode(Started=[RunStep(where)], StepDone=after_steps, StepFailed=[Finish("done")])
    host = make(node)
    run(host)
    assert threads[0].startswith("step")
    assert node.all(StepDone) == [StepDone("result")]
    assert node.all(StepFailed) == [StepFailed("ZeroDivisionError: division by zero")]
    assert "a training step failed" in caplog.text


def test_the_loop_goes_on_while_a_step_runs(make):
    gate = threading.Event()
    node = NotingNode(Started=[RunStep(lambda: gate.wait(30)), SetTimer(0.0)])

    async def scenario():
        await until(lambda: node.all(TimerFired))
        assert not node.all(StepDone)
        gate.set()
        await until(lambda: node.all(StepDone))

    run(make(node), scenario)


def test_the_last_timer_fires_once_and_not_early(make):
    def start(_, now):
        times.append(now)
        return [SetTimer(now + 0.01), SetTimer(now + 60), SetTimer(now + 0.1)]

    def fired(_, now):
        times.append(now)
        return [Report("info", "fired")]

    times = []
    node = NotingNode(Started=start, TimerFired=fired)

    async def scenario():
        await until(lambda: node.all(TimerFired))
        await asyncio.sleep(0.1)

    run(make(node), scenario)
    assert len(times) == 2
    assert times[1] - times[0] >= 0.1


def test_a_snapshot_is_answered_when_it_is_on_disk_and_comes_back(make, tmp_path):
    synced = []

    def saved(event, _):
        synced.append(SnapshotStore(tmp_path / "a").load().about["n"])
        return [Finish("done")] if event.number == 2 else []

    more = [Save(1, SNAPSHOT), Save(2, Snapshot({}, {"n": 2}))]
    run(make(NotingNode(Started=more, Saved=saved)))
    assert synced[-1] == 2
    node = NotingNode(Started=[Finish("done")])
    run(make(node))
    assert node.events[0].snapshot.about == {"n": 2}
    node = NotingNode(Started=[Finish("done")])
    run(make(node), fresh=True)
    assert node.events[0].snapshot is None
    assert len(list((tmp_path / "a").glob("*.old1"))) == 2


def test_a_full_disk_is_an_answer_and_no_end(make, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    node = NotingNode(Started=[Save(1, SNAPSHOT), Export(2, MODEL)])
    host = make(node, export=full)
    monkeypatch.setattr(os, "fsync", full)

    async def scenario():
        await until(lambda: len(node.all(SaveFailed)) == 2)
        assert host.status()["snapshot_failures"] == 2

    host._store.folder.mkdir()  # else it could not be made
    run(host, scenario)
    assert "No space left on device; free some space" in node.all(SaveFailed)[0].reason
    assert not node.all(Saved)


def test_reports_are_logged_with_their_fields(make, caplog):
    caplog.set_level("INFO", logger="gadget_svm")
    run(make(NotingNode(Started=[Report("warning", "100 % of it", {"name": "x"}), Finish("done")])))
    record = next(record for record in caplog.records if record.levelno == logging.WARNING)
    assert record.getMessage() == "100 % of it"
    assert record.fields == {"name": "x"}


# Two hosts


def test_two_hosts_exchange_messages_and_see_each_other_leave(make):
    def greet(event, _):
        return [Send(event.link, hello("a" if event.dialled is None else "b"))]

    def reply(event, _):
        return [Send(event.link, push(1))] if event.message == hello("a") else []

    a = NotingNode(LinkUp=greet)
    host = make(a)

    async def scenario():
        await until(lambda: host.port)
        b = NotingNode(Started=[Dial(f"127.0.0.1:{host.port}", "a")], LinkUp=greet, Received=reply)
        other = make(b, "b")
        task = asyncio.create_task(other.run())
        await until(lambda: len(a.all(Received)) == 2)
        assert a.all(LinkUp)[0].identity == "b"
        assert host.status()["links_open"] == other.status()["links_open"] == 1
        assert host.status()["messages_received"] == other.status()["messages_sent"] == 2
        other.stop("enough")
        await task
        await until(lambda: a.all(LinkDown))

    run(host, scenario)


def test_a_new_revocation_list_is_taken_up_and_reported(own_certificates, tmp_path, monkeypatch):
    monkeypatch.setattr(host_module, "CHECK_INTERVAL_S", 0.05)
    node = NotingNode()
    credentials, other = own_certificates.of("a"), own_certificates.of("b")
    host = PeerHost(node, HostSettings("127.0.0.1:0"), LIMITS, credentials, SnapshotStore(tmp_path / "s"), print)

    async def scenario():
        await until(lambda: host.port)
        b = NotingNode(Started=[Dial(f"127.0.0.1:{host.port}", "a")])
        task_host = PeerHost(b, HostSettings("127.0.0.1:0"), LIMITS, other, SnapshotStore(tmp_path / "t"), print)
        task = asyncio.create_task(task_host.run())
        await until(lambda: node.all(LinkUp))
        own_certificates.revoke("b", "a")
        await until(lambda: node.all(LinkDown))
        assert node.all(LinkDown)[0].reason == "revoked"
        assert len(node.all(CredentialsChanged)) == 2
        task_host.stop("")
        await task

    run(host, scenario)


# How it ends


def test_a_node_that_raises_ends_the_process_with_an_error_and_writes_nothing_more(make, tmp_path, caplog):
    def broken(*_):
        raise RuntimeError("a defect")

    node = NotingNode(Started=[Save(1, SNAPSHOT)], Saved=broken)
    with pytest.raises(NodeFailedError, match="RuntimeError: a defect"):
        run(make(node))
    assert "the node failed" in caplog.text
    assert SnapshotStore(tmp_path / "a").load().about == {"n": 1}
    with pytest.raises(NodeFailedError):
        run(make(NotingNode(Started=lambda *_: [RunStep(None), 7])))  # not an effect


def test_the_folder_is_held_until_a_slow_write_has_ended(make, tmp_path):
    """Also if the node has failed meanwhile."""
    gate, begun = threading.Event(), threading.Event()

    def slow(_):
        begun.set()
        assert gate.wait(30)

    node = NotingNode(Started=[Export(1, MODEL), Save(2, SNAPSHOT)])
    host = make(node, export=slow)

    async def scenario():
        await until(begun.is_set)
        host.stop("now")
        await asyncio.sleep(0.2)
        with pytest.raises(SnapshotError, match="in use"):
            SnapshotStore(tmp_path / "a").open()
        gate.set()

    run(host, scenario)
    store = SnapshotStore(tmp_path / "a")
    store.open()
    assert store.load().about == {"n": 1}
    store.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_ask_the_node_to_leave(make, number):
    previous = signal.signal(number, signal.default_int_handler)  # a test may run where it is ignored
    try:
        node = NotingNode(CredentialsChanged=lambda *_: os.kill(os.getpid(), number) or [])
        run(make(node))
        assert node.all(StopRequested) == [StopRequested(f"signal {number.name}")]
    finally:
        signal.signal(number, previous)


def test_a_signal_that_the_process_was_started_to_ignore_is_ignored(make):
    previous = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        node = NotingNode(CredentialsChanged=lambda *_: os.kill(os.getpid(), signal.SIGHUP) or [])

        async def scenario():
            await asyncio.sleep(0.2)
            assert not node.all(StopRequested)

        run(make(node), scenario)
    finally:
        signal.signal(signal.SIGHUP, previous)


def test_an_address_or_a_folder_that_is_taken_is_named(make, tmp_path):
    node = NotingNode()
    host = make(node)

    async def scenario():
        await until(lambda: host.port)
        with pytest.raises(OSError, match=rf"127\.0\.0\.1:{host.port} .*in use.*set \[peer\] listen"):
            await make(NotingNode(), "b", listen=f"127.0.0.1:{host.port}").run()
        with pytest.raises(SnapshotError, match="in use by process"):
            await make(NotingNode(), "b", folder=tmp_path / "a").run()

    run(host, scenario)


# What operators see


def get(port, path):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_status_health_and_metrics_are_served(make):
    node = NotingNode()
    host = make(node)

    async def scenario():
        server = await serve_status(host.status, "127.0.0.1", 0)
        port = server.addresses[0][1]

        async def ask(path):
            return await asyncio.to_thread(get, port, path)

        code, body = await ask("/healthz")
        assert (code, json.loads(body)["state"]) == (200, "learning")
        for state, expected in (("certified", 200), ("isolated", 503), ("degraded", 503), ("stuck", 503)):
            node.state = state
            code, body = await ask("/healthz")
            assert (code, json.loads(body)["state"]) == (expected, state)
        code, body = await ask("/status.json")
        assert code == 200
        assert json.loads(body)["ticks"] == 3
        code, body = await ask("/metrics")
        families = {family.name: family for family in text_string_to_metric_families(body)}
        assert families["gadget_peer_ticks"].samples[0].value == 3
        assert {s.labels["state"]: s.value for s in families["gadget_peer_state"].samples}["stuck"] == 1
        assert all(name.startswith("gadget_peer") and found.documentation for name, found in families.items())
        assert (await ask("/nowhere"))[0] == 404
        await server.cleanup()

    run(host, scenario)


def test_a_step_that_takes_too_long_is_stuck(make, monkeypatch):
    monkeypatch.setattr(host_module, "STUCK_S", 0.05)
    gate = threading.Event()
    host = make(NotingNode(Started=[RunStep(lambda: gate.wait(30))]))

    async def scenario():
        await until(lambda: host.port)
        await asyncio.sleep(0.1)
        assert host.status()["state"] == "stuck"
        gate.set()
        await until(lambda: host.status()["state"] == "learning")

    run(host, scenario)


def test_a_status_port_in_use_names_the_setting(make):
    host = make(NotingNode())

    async def scenario():
        await until(lambda: host.port)
        with pytest.raises(OSError, match=rf"127\.0\.0\.1:{host.port} .*set \[metrics\] port"):
            await make(NotingNode(), "b", metrics=config.Metrics(port=host.port)).run()

    run(host, scenario)


# Control


class Config:
    """As much of a peer.toml as control needs."""

    def __init__(self, certificates, name):
        self.tls = type("Tls", (), certificates.paths(name))
        self.peer = type("Peer", (), {"name": name})


def test_any_peer_may_ask_for_the_status_and_only_itself_may_stop_it(make, certificates):
    node = NotingNode()
    host = make(node)
    a, b = Config(certificates, "a"), Config(certificates, "b")

    async def scenario():
        await until(lambda: host.port)
        address = f"127.0.0.1:{host.port}"
        found = await asyncio.to_thread(fetch_status, b, address)
        assert found["name"] == "a"
        assert found["messages_received"] == 0
        assert host.links.handshakes._proved == 1  # a call is not counted as a failed handshake
        with pytest.raises(UnreachableError):
            await asyncio.to_thread(fetch_status, b, address, "c")
        b.peer.name, own = "a", b.peer.name
        with pytest.raises(ValueError, match="certificate of 'b', but the peer is called 'a'"):
            await asyncio.to_thread(request_stop, b, address)
        b.peer.name = own
        from gadget_svm.peers.process.control import _call

        with pytest.raises(ValueError, match="only a itself may stop a, not b"):
            await asyncio.to_thread(_call, certificates.of("b"), address, "a", "Stop", "")
        assert not node.all(StopRequested)
        await asyncio.to_thread(request_stop, a, address)
        assert node.all(StopRequested) == [StopRequested("gadget peer stop")]

    run(host, scenario)
    with pytest.raises(UnreachableError):
        fetch_status(a, f"127.0.0.1:{host.port}")


def test_revoked_peers_are_not_answered(own_certificates, tmp_path):
    host = PeerHost(
        NotingNode(),
        HostSettings("127.0.0.1:0"),
        LIMITS,
        own_certificates.of("a"),
        SnapshotStore(tmp_path / "s"),
        print,
    )
    b = Config(own_certificates, "b")

    async def scenario():
        await until(lambda: host.port)
        own_certificates.revoke("b", "a")
        host._credentials.reload()
        with pytest.raises(ValueError, match="refuses: the certificate of 'b' is revoked"):
            await asyncio.to_thread(fetch_status, b, f"127.0.0.1:{host.port}")

    run(host, scenario)


def test_nothing_in_this_folder_reads_a_pickle():
    for path in Path(host_module.__file__).parent.glob("*.py"):
        assert "pickle" not in path.read_text(), path
