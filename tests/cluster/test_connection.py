"""Connections to Ray: options, addresses where no Ray answers, calls that do not return. Ray is never started."""

import atexit
import signal
import socket
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from gadget_svm import GadgetSVC
from gadget_svm.cluster import connection
from gadget_svm.cluster.options import RayOptions
from support.ray_kit import until
from support.web_server import Web


@pytest.fixture
def mute():
    """A port that takes no connection and refuses none: its queue is full."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = [socket.socket() for _ in range(8)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(server.getsockname())
        yield server.getsockname()[1]
        for each in waiting:
            each.close()


@pytest.fixture
def closed():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return server.getsockname()[1]


@pytest.fixture
def silent():
    """A port that takes connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(8)
        yield server.getsockname()[1]


@pytest.fixture
def other(tmp_path):
    """A server of another kind."""
    with Web(tmp_path) as web:
        yield web.port


@pytest.fixture
def ray(monkeypatch):
    """Stands for the module; ``stuck`` names a function that does not return until the test is over."""
    free = threading.Event()
    module = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: None, shutdown=lambda: None)
    module.cluster_resources = lambda: {"CPU": 2.0}
    module.stuck = lambda name: setattr(module, name, lambda *_, **__: free.wait(60))
    monkeypatch.setattr(connection, "require", lambda *_: module)
    monkeypatch.setattr(atexit, "unregister", lambda _: None)
    yield module
    free.set()
    until(lambda: not connection.has_abandoned_call(), 20)


def cluster(**options):
    return connection.Cluster(RayOptions.of(options))


@pytest.mark.parametrize("kind", ["127.0.0.1:{}", "ray://127.0.0.1:{}"])
@pytest.mark.parametrize("way", ["mute", "closed", "silent", "other"])
def test_an_address_where_no_ray_answers(monkeypatch, request, ray, kind, way):
    port = request.getfixturevalue(way)
    monkeypatch.setattr(connection, "TRIAL", "import time; time.sleep(60)")  # as Ray waits
    ray.init = lambda **_: pytest.fail("it was not tried in a process of its own")
    with pytest.raises(ConnectionError, match=f"no Ray answers at .*127.0.0.1:{port} .*check that its head runs"):
        cluster(address=kind.format(port), start_timeout=0.5)


def test_what_ray_says_of_an_address_is_told(monkeypatch, ray, silent):  # noqa: ARG001
    monkeypatch.setattr(connection, "TRIAL", "raise RuntimeError('wrong token')")
    with pytest.raises(ConnectionError, match=r"\(RuntimeError: wrong token\): check"):
        cluster(address=f"127.0.0.1:{silent}")


@pytest.mark.parametrize("address", ["10.0.0.5", "10.0.0.5:port", ":6379"])
def test_a_malformed_address(ray, address):  # noqa: ARG001
    with pytest.raises(ValueError, match="address must be HOST:PORT"):
        cluster(address=address)


def test_a_cluster_that_lets_no_driver_in(monkeypatch, ray):
    """The error names address and limit. While Ray still tries, no other training may use it."""
    monkeypatch.setattr(connection, "require_reachable", lambda *_: None)
    ray.stuck("init")
    with pytest.raises(TimeoutError, match=r"not connect to 10\.0\.0\.5:6379 within 0\.5 s"):
        cluster(address="10.0.0.5:6379", start_timeout=0.5)
    with pytest.raises(RuntimeError, match="start another"):
        cluster(address="10.0.0.5:6379")


def test_a_cluster_that_does_not_answer_at_the_end(monkeypatch, ray):
    monkeypatch.setattr(connection, "require_reachable", lambda *_: None)
    monkeypatch.setattr(connection, "SHUTDOWN_TIMEOUT_S", 0.5)
    there = cluster(address="10.0.0.5:6379")
    ray.stuck("shutdown")
    with pytest.warns(UserWarning, match="did not disconnect within 0.5 s; the models are complete"):
        there.close()
    there.close()


@pytest.mark.parametrize("mine", [signal.SIG_DFL, signal.SIG_IGN, lambda *_: None], ids=["none", "ignored", "handler"])
def test_ray_does_not_replace_the_sigterm_handler(ray, mine):
    def rays_handler(*_):
        raise AssertionError("not reached")

    ray.init = lambda **_: signal.signal(signal.SIGTERM, rays_handler)
    before = signal.signal(signal.SIGTERM, mine)
    try:
        there = cluster()
        if mine == signal.SIG_DFL:
            with pytest.raises(SystemExit, match="143"):
                signal.raise_signal(signal.SIGTERM)
        else:
            assert signal.getsignal(signal.SIGTERM) == mine
        there.close()
        assert signal.getsignal(signal.SIGTERM) == mine
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_cluster_that_hangs(monkeypatch, ray):
    monkeypatch.setattr(connection, "require_reachable", lambda *_: None)
    there = cluster(address="10.0.0.5:6379", timeout=0.2, start_timeout=0.3)
    assert [there.actors(nodes) for nodes in (1, 2, 9)] == [1, 2, 2]
    ray.stuck("cluster_resources")
    with pytest.raises(TimeoutError, match=r"not report the cluster's CPUs within 0\.2 s"):
        there.actors(9)
    hanging = SimpleNamespace()
    hanging.options = lambda **_: hanging
    hanging.remote = lambda *_: threading.Event().wait(5)
    ray.remote = lambda _: hanging
    with pytest.raises(TimeoutError, match=r"not register a new actor within 0\.3 s"):
        there.create(0, None)
    there.close()


def test_another_ray_than_the_current_one_is_refused(ray):
    ray.is_initialized = lambda: True
    ray.get_runtime_context = lambda: SimpleNamespace(gcs_address="127.0.0.1:6379")
    for other in ("127.0.0.1:1", "10.255.255.1:6379", "local"):
        with pytest.raises(ValueError, match=rf"address is '{other}', but .* at 127.0.0.1:6379, .* leave address out"):
            cluster(address=other)
    for same in ("127.0.0.1:6379", "auto", None):
        cluster(address=same).close()


def test_the_result_or_error_of_a_call_passes():
    def fail():
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        connection.call_within(5, "nothing", fail)
    assert connection.call_within(5, "nothing", lambda: 3) == 3


def test_ray_is_missing(monkeypatch, toy):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(ImportError, match=r"pip install 'gadget-svm\[ray\]'"):
        GadgetSVC(engine="ray").fit(toy.X, toy.y)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"actor": 2}, "Did you mean 'actors'"),
        ({"actors": 0}, "at least 1, got 0"),
        ({"timeout": -1}, "positive number, got -1"),
        ({"resume": True}, "needs checkpoint_dir"),
        ({"timeout": None}, "engine option timeout must be a positive number, got None"),
        ({"num_cpus": [1]}, "engine option num_cpus must be"),
        ({"address": 5}, "engine option address must be"),
        ({"resources": "gpu"}, "engine option resources must be"),
        ({"restart": "yes"}, "engine option restart must be True or False"),
        ({"checkpoint_dir": "s3://bucket/x"}, "is a URI, and checkpoints need a folder"),
    ],
)
def test_options_are_checked_by_name(options, said):
    with pytest.raises(ValueError, match=said):
        RayOptions.of(options)


def test_options_of_the_estimator(toy):
    with pytest.raises(ValueError, match="faults are simulated"):
        GadgetSVC(engine="ray", faults="loss=0.1").fit(toy.X, toy.y)
    with pytest.raises(ValueError, match="Did you mean 'ray'"):
        GadgetSVC(engine="rai").fit(toy.X, toy.y)
    assert RayOptions.of({"num_cpus": np.float32(2), "actors": np.int64(3)}).actors == 3
