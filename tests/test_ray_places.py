"""Where actors read shards from: paths, web servers, S3; and what Ray is asked for that may not answer."""

import socket
import threading
from urllib.parse import quote

import numpy as np
import pytest

from gadget_svm import GadgetSVC
from gadget_svm.data.files import DataFileError
from gadget_svm.estimator.places import read_place, scheme_of, shard_names, shown
from gadget_svm.runtimes import ray_cluster
from ray_kit import LAM, files_of, own_ray, ray
from web_kit import Web

SETTINGS = {"lam": LAM, "random_state": 1, "stopping": None, "max_iter": 20}


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with own_ray():
        yield


def on_ray(**options):
    return GadgetSVC(engine="ray", engine_options={"actors": 2, **options}, **SETTINGS)


# paths and URIs


def test_what_is_a_uri_and_what_is_a_path():
    assert [scheme_of(place) for place in ("s3://b/x.svm", "file:///x", "file:/x", "HTTP://h/x")] == [
        "s3", "file", "file", "http",
    ]  # fmt: skip
    assert [scheme_of(place) for place in ("/x", "x:y.svm", "C:/x", "run1:part.svm", "a//b", "")] == [""] * 6


def test_a_file_uri_is_decoded(toy, tmp_path):
    folder = tmp_path / "50 % ü#?"
    folder.mkdir()
    paths = files_of(toy, folder)
    hosts = ("", "localhost", "", "localhost", "")
    places = [f"file://{host}{quote(str(path))}" for host, path in zip(hosts, paths, strict=True)]
    assert shard_names(places) == [str(path) for path in paths]
    np.testing.assert_array_equal(read_place(places[1]).y, read_place(str(paths[1])).y)
    local = GadgetSVC(**SETTINGS).fit_shards(paths)
    np.testing.assert_array_equal(local.node_coef_, on_ray().fit_shards(places).node_coef_)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file://store/data/part-0.svm", "machine 'store'.*write file:///data/part-0.svm"),
        ("file:///data/part#1.svm", "write %3F and %23"),
        ("https://key:word@example.org/", "https://example.org/ names no file, so its format cannot be told"),
        ("s3://bucket", "s3://bucket names no file"),
    ],
)
def test_places_that_are_refused_before_anything_starts(place, said):
    with pytest.raises(ValueError, match=said):
        on_ray().fit_shards([place, place])


def test_keys_are_not_shown():
    assert shown("s3://key:secret@bucket/part.svm?endpoint_override=h&x=token") == "s3://bucket/part.svm"
    assert shown("https://h:81/part.svm?signature=s#f") == "https://h:81/part.svm"
    assert shown("/data/a?b#c@d") == "/data/a?b#c@d"


# web servers


def test_shards_of_a_web_server(toy, tmp_path):
    paths = files_of(toy, tmp_path)
    local = GadgetSVC(**SETTINGS).fit_shards(paths)
    with Web(tmp_path) as web:
        model = on_ray().fit_shards([web.url(path.name) for path in paths])
    np.testing.assert_array_equal(local.node_coef_, model.node_coef_)


def test_a_shard_that_the_server_does_not_have(toy, tmp_path):
    paths = files_of(toy, tmp_path)
    with Web(tmp_path) as web:
        places = [web.url(path.name) for path in paths[:-1]] + [web.url("absent.svm?key=secret")]
        with pytest.raises(FileNotFoundError, match=r"http://127.0.0.1:\d+/absent.svm \(the server answers 404"):
            on_ray().fit_shards(places)


def test_what_a_server_may_do_wrong(toy, tmp_path):
    """Nobody there, half a file, no file of a known format: each names the shard."""
    with Web(tmp_path) as web:
        place = web.url("part-0.svm")
        (tmp_path / "blob").write_bytes(b"\x00\x01\x02")
        with pytest.raises(DataFileError, match=r"^http://127.0.0.1:\d+/blob: cannot tell its format"):
            read_place(web.url("blob"))
        files_of(toy, tmp_path)
        web.part = 0.5
        with pytest.raises(OSError, match=r"/part-0.svm cannot be read: .*bytes"):
            read_place(place)
    with pytest.raises(OSError, match=r"/part-0.svm cannot be read: .*refused"):
        read_place(place)


# S3


def test_shards_of_a_bucket(toy, tmp_path):
    pytest.importorskip("pyarrow")
    paths = files_of(toy, tmp_path)
    local = GadgetSVC(**SETTINGS).fit_shards(paths)
    asked = []
    with Web(tmp_path, asked.append, bucket="bucket") as web:
        model = on_ray().fit_shards([web.s3(path.name) for path in paths])
        assert {f"/bucket/{path.name}" for path in paths} <= set(asked)
        with pytest.raises(FileNotFoundError, match=r"no shard s3://bucket/absent.svm") as absent:
            read_place(web.s3("absent.svm"))
    assert "secret" not in str(absent.value)
    np.testing.assert_array_equal(local.node_coef_, model.node_coef_)


# a Ray that does not answer


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


@pytest.mark.parametrize("kind", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "auto"])
@pytest.mark.parametrize("way", ["mute", "closed"])
def test_an_address_where_nobody_answers(toy, monkeypatch, request, kind, way):
    port = request.getfixturevalue(way)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: pytest.fail("it was not asked first"))
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(ConnectionError, match=f"no Ray answers at .*127.0.0.1:{port} .*check that its head runs"):
        on_ray(address=kind.format(port), start_timeout=1).fit(toy.X, toy.y)


def test_an_address_that_is_none(toy, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    for address in ("10.0.0.5", "10.0.0.5:port", ":6379"):
        with pytest.raises(ValueError, match="address must be HOST:PORT"):
            on_ray(address=address).fit(toy.X, toy.y)


def test_a_cluster_that_does_not_say_what_it_has(toy, monkeypatch):
    monkeypatch.setattr(ray, "cluster_resources", threading.Event().wait)
    with pytest.raises(TimeoutError, match=r"within 0\.5 s how many CPUs the cluster has"):
        on_ray(actors=None, timeout=0.5).fit(toy.X, toy.y)


def test_a_dataset_that_is_not_shared_out():
    class Slow:
        """Waits for room that never comes."""

        count = threading.Event().wait

    Slow.__module__ = "ray.data.slow"
    with pytest.raises(TimeoutError, match=r"within 0\.5 s how it shares the Dataset out"):
        on_ray(start_timeout=0.5).fit_shards(Slow())


def test_what_a_call_raises_passes():
    def fail():
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        ray_cluster.within(5, "nothing", fail)
    assert ray_cluster.within(5, "nothing", lambda: 3) == 3
