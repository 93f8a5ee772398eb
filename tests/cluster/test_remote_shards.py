"""Where actors read shards from: paths, web servers, S3; and what Ray is asked for that may not answer."""

import atexit
import base64
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import quote

import numpy as np
import pytest

from gadget_svm import GadgetSVC
from gadget_svm.cluster import connection, timeouts
from gadget_svm.data.files import DataFileError
from gadget_svm.data.formats import read_raw as read_place
from gadget_svm.estimator.shard_uris import display_name, scheme_of, shard_names
from support.ray_kit import LAM, files_of, own_ray, ray, until
from support.web_server import Web

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
    for engine in (GadgetSVC(**SETTINGS), on_ray()):
        np.testing.assert_array_equal(local.node_coef_, engine.fit_shards(places).node_coef_)


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("file://store/data/part-0.svm", "machine 'store'.*write file:///data/part-0.svm"),
        ("file:///data/part#1.svm", "write %3F and %23"),
        ("https://key:word@example.org/", "https://example.org/ names no file, so its format cannot be told"),
        ("s3://bucket", "s3://bucket names no file"),
        ("s3://key:sec/ret@bucket/part.svm", "^a s3:// shard has something after a ':' that is no port"),
    ],
)
def test_places_that_are_refused_before_anything_starts(place, said):
    with pytest.raises(ValueError, match=said):
        on_ray().fit_shards([place, place])


def test_keys_are_not_shown():
    assert display_name("s3://key:secret@bucket/part.svm?endpoint_override=h&x=token") == "s3://bucket/part.svm"
    assert display_name("https://h:81/part.svm?signature=s#f") == "https://h:81/part.svm"
    assert display_name("/data/a?b#c@d") == "/data/a?b#c@d"
    assert display_name("hdfs:///data/part.svm?user=me") == "hdfs:///data/part.svm"
    assert display_name("http://user:1234/secret@h/part.svm") == "http://h/part.svm"
    with pytest.raises(ValueError, match=r"^file://h/part.svm is a file of the machine 'h'"):
        shard_names(["file://user:secret@h/part.svm"])


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


class Gate(BaseHTTPRequestHandler):
    """Lets in who knows the password, and sends on to another place."""

    heard: ClassVar[list[str | None]] = []

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.heard.append(self.headers.get("Authorization"))
        if self.path == "/beyond.svm":
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"1 1:2\n0 1:3\n")
            return
        known = self.heard[-1] == "Basic " + base64.b64encode(b"us er:w:rd@").decode()
        self.send_response(302 if known else 401)
        self.send_header("Location", "/beyond.svm")
        self.end_headers()


def test_a_password_goes_to_its_server_and_nowhere_else():
    """As basic authentication: where the server sends us on to does not hear of it, nor does who reads an error."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Gate) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        place = f"127.0.0.1:{server.server_port}/part.svm"
        assert read_place(f"http://us%20er:w%3Ard%40@{place}").y.tolist() == [1, 0]
        with pytest.raises(OSError, match=rf"^http://{place} cannot be read: the server answers 401") as refused:
            read_place(f"http://us%20er:wrong@{place}")
        server.shutdown()
    assert [each is not None for each in Gate.heard] == [True, False, True]
    assert "wrong" not in str(refused.value)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_server_sends_on_within_the_web_only(toy, tmp_path, status):
    """Neither to files of the machine that reads, nor to other servers; and where to is not told, as it may hold a
    key."""
    (path, *_) = files_of(toy, tmp_path)
    with Web(tmp_path) as web:
        for to in ("part-0.svm", "/part-0.svm", web.url("part-0.svm")):
            web.moved["/old.svm"] = status, to
            np.testing.assert_array_equal(read_place(web.url("old.svm")).y, read_place(str(path)).y)
        for scheme, to in (("file", path.as_uri()), ("ftp", "FTP://us:hush@127.0.0.1:9/p.svm"), ("data", "data:,hush")):
            web.moved["/old.svm"] = status, to
            said = rf"/old.svm cannot be read: the server answers {status} .*, a redirect to {scheme}:, and only those"
            with pytest.raises(OSError, match=said) as refused:
                read_place(web.url("old.svm"))
            assert "hush" not in str(refused.value)
            assert str(path) not in str(refused.value)


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


def test_labels_that_are_numbers_here_and_words_there(tmp_path):
    """Actors' shards as those that are read here."""
    (tmp_path / "a.svm").write_text("+1 1:2\n-1 1:3\n")
    (tmp_path / "b.csv").write_text("2,ill\n3,well\n")
    with pytest.warns(UserWarning, match=r"a\.svm has the labels -1, 1 and .*b\.csv has ill, well"):
        model = on_ray().fit_shards([tmp_path / "a.svm", tmp_path / "b.csv"])
    assert model.classes_.tolist() == ["-1", "1", "ill", "well"]


# S3


def test_shards_of_a_bucket(toy, tmp_path):
    pytest.importorskip("pyarrow")
    paths = files_of(toy, tmp_path)
    local = GadgetSVC(**SETTINGS).fit_shards(paths)
    asked = []
    with Web(tmp_path, asked.append, bucket="bucket") as web:
        model = on_ray().fit_shards([web.s3(path.name) for path in paths])
        assert {f"/bucket/{path.name}" for path in paths} <= set(asked)
        with pytest.raises(FileNotFoundError, match=r"no file s3://bucket/absent.svm") as absent:
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


@pytest.mark.parametrize("kind", ["127.0.0.1:{}", "ray://127.0.0.1:{}", "auto"])
@pytest.mark.parametrize("way", ["mute", "closed", "silent", "other"])
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


def test_an_address_where_ray_answers():
    """The one these tests run on."""
    connection.reach(ray.get_runtime_context().gcs_address, 20)


@pytest.fixture
def stuck(monkeypatch):
    """Calls of Ray that never come back, until the test is over."""
    free = threading.Event()

    def make(name):
        monkeypatch.setattr(ray, name, lambda *_, **__: free.wait(60))

    monkeypatch.setattr(atexit, "unregister", lambda _: None)
    yield make
    free.set()
    until(lambda: not timeouts.hanging(), 20)


def test_a_cluster_that_does_not_let_us_in(toy, monkeypatch, stuck):
    """The error names address and limit. As long as Ray is at it, no other training may ask it for anything."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(connection, "reach", lambda *_: None)
    stuck("init")
    stuck("shutdown")
    with pytest.raises(TimeoutError, match=r"not connected to 10\.0\.0\.5:6379 within start_timeout=0\.5 s"):
        on_ray(address="10.0.0.5:6379", start_timeout=0.5).fit(toy.X, toy.y)
    with pytest.raises(RuntimeError, match="start a new one"):
        on_ray(address="10.0.0.5:6379").fit(toy.X, toy.y)


def test_a_cluster_that_does_not_answer_to_a_farewell(toy, monkeypatch, stuck):
    """The models are there all the same."""
    close = connection.Cluster.close

    def leave(self):
        self.own = True
        stuck("shutdown")
        close(self)

    monkeypatch.setattr(connection.Cluster, "close", leave)
    monkeypatch.setattr(connection, "FAREWELL", 0.5)
    monkeypatch.setattr(connection, "_kill_own", lambda: True)
    with pytest.warns(UserWarning, match="no longer answers, so it was left without a farewell"):
        model = on_ray().fit(toy.X, toy.y)
    assert model.n_iter_ == SETTINGS["max_iter"]


def test_a_cluster_that_does_not_hear_of_new_actors(toy, monkeypatch):
    class Deaf:
        def options(self, **_):
            return self

        def remote(self, *_):
            threading.Event().wait()

    monkeypatch.setattr(ray, "remote", lambda _: Deaf())
    with pytest.raises(TimeoutError, match=r"within 0\.5 s that it has heard of a new actor"):
        on_ray(start_timeout=0.5).fit(toy.X, toy.y)


def test_a_cluster_that_does_not_say_what_it_has(toy, monkeypatch):
    monkeypatch.setattr(ray, "cluster_resources", threading.Event().wait)
    with pytest.raises(TimeoutError, match=r"within 0\.5 s how many CPUs the cluster has"):
        on_ray(actors=None, timeout=0.5).fit(toy.X, toy.y)


def test_a_dataset_that_is_not_shared_out():
    class Slow:
        """Waits for room that never comes."""

        count = threading.Event().wait

    Slow.__module__ = "ray.data.slow"
    with pytest.raises(TimeoutError, match=r"within 0\.5 s that the Dataset's rows are there"):
        on_ray(start_timeout=0.5).fit_shards(Slow())


def test_what_a_call_raises_passes():
    def fail():
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        connection.within(5, "nothing", fail)
    assert connection.within(5, "nothing", lambda: 3) == 3
