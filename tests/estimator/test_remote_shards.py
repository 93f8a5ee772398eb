"""Shards that actors read: paths, URIs, web servers, S3, a Dataset. The actors are threads."""

import base64
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import quote

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file

from gadget_svm import GadgetSVC
from gadget_svm.cluster.connection import has_abandoned_call
from gadget_svm.data.files import DataFileError
from gadget_svm.data.formats import read_files
from gadget_svm.data.formats import read_raw as read_place
from gadget_svm.data.uris import display_name, scheme_of
from gadget_svm.estimator.problem import as_csr
from gadget_svm.estimator.shards import CommonFormat, Shards, shard_names
from gadget_svm.kernels.dual import multiplicity
from support.ray_kit import events_of, files_of, until
from support.threaded_actors import LAM, Stage
from support.watch import watched
from support.web_server import Web

SETTINGS = {"lam": LAM, "random_state": 1, "stopping": None, "max_iter": 20}


@pytest.fixture
def stage(monkeypatch, toy):
    return Stage(monkeypatch, toy)


@pytest.fixture
def on_ray(stage):  # noqa: ARG001 - takes the place of Ray
    def make(settings=SETTINGS, **options):
        return GadgetSVC(engine="ray", engine_options={"actors": 2, **options}, **settings)

    return make


@pytest.mark.parametrize("algorithm", ["auto", "gadget"])
def test_files_are_read_by_the_actors(toy, tmp_path, on_ray, algorithm):
    """The models are those of the same files read here; the objective is summed by actors, to the last bits."""
    paths = files_of(toy, tmp_path)
    settings = {**SETTINGS, "algorithm": algorithm}
    local = GadgetSVC(**settings).fit_shards(paths)
    remote = on_ray(settings).fit_shards(paths)
    for name in ("node_coef_", "coef_", "intercept_"):
        np.testing.assert_array_equal(getattr(local, name), getattr(remote, name))
    assert local.history_[-1]["bytes"] == remote.history_[-1]["bytes"]
    for name in ("objective", "worst_objective", "error"):
        assert local.history_[-1][name] == pytest.approx(remote.history_[-1][name], rel=1e-12)
    assert (remote.predict(toy.X) == local.predict(toy.X)).all()


def test_files_with_class_weights_pairs_and_c(toy, tmp_path, on_ray):
    """Weights, lam and pairs of classes are computed from what the actors tell of their rows."""
    paths = [str(tmp_path / f"{i}.svm") for i in range(4)]
    for i, path in enumerate(paths):
        dump_svmlight_file(toy.X[i::4], toy.three[i::4], path, zero_based=False)
    settings = {"C": 0.3, "class_weight": {0: 0.7, 1: 1.9, 2: 0.1}, "multi_class": "ovo", "random_state": 1}
    settings |= {"stopping": None, "max_iter": 30, "record_every": 0}
    local = GadgetSVC(**settings).fit_shards(paths)
    remote = on_ray(settings).fit_shards(paths)
    assert local.lam_ == remote.lam_
    np.testing.assert_array_equal(local.node_coef_, remote.node_coef_)
    assert local.history_[-1]["objective"] == pytest.approx(remote.history_[-1]["objective"], rel=1e-12)


def test_a_missing_file_is_named(tmp_path, on_ray):
    with pytest.raises(FileNotFoundError, match="absent"):
        on_ray(actors=1).fit_shards([tmp_path / "absent.svm", tmp_path / "absent too.svm"])


def test_files_that_changed_are_named_when_resumed(toy, tmp_path, on_ray):
    paths = files_of(toy, tmp_path)
    options = {"checkpoint_dir": str(tmp_path / "kept")}
    on_ray(**options).fit_shards(paths)
    paths[1].write_bytes(paths[3].read_bytes())
    with pytest.raises(ValueError, match=r"rows of node 1 \(.*part-1.svm\) are not those the checkpoint"):
        on_ray(**options, resume=True).fit_shards(paths)


def test_a_restarted_actor_reads_its_files_again(toy, tmp_path, stage, on_ray):
    """A file is absent for a moment."""
    paths = files_of(toy, tmp_path)
    away, settings = paths[4].with_suffix(".away"), {**SETTINGS, "record_every": 10}
    model = on_ray(settings, restart=True, start_timeout=60)

    def observe(record, view):  # noqa: ARG001
        if record["iteration"] == 10:
            paths[4].rename(away)
            threading.Timer(0.7, lambda: away.rename(paths[4])).start()
            stage.kill(1)

    watched(model, observe)._fit_remote(paths)
    assert [event["event"] for event in events_of(model.history_)] == ["lost", "restarted"]
    np.testing.assert_array_equal(GadgetSVC(**settings).fit_shards(paths).node_coef_, model.node_coef_)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("count", [1, 3])
def test_an_actors_shards_are_stacked(tmp_path, count, intercept):
    """As read in one place; features that occur nowhere are found, and left out where the rows are."""
    names = []
    for i in range(count):
        names.append(str(tmp_path / f"{i}.svm"))
        (tmp_path / f"{i}.svm").write_text(f"1 1:{i + 1} 9:2\n-1 {i + 2}:0.5\n" * (i + 1))
    tables = read_files(names, n_features=12).tables
    X = as_csr(sp.vstack([X for X, _ in tables]), intercept)
    shards = Shards(names)
    assert [summary.rows for summary in shards.summarize()] == [len(y) for _, y in tables]
    used, sizes = shards.convert(CommonFormat(12, True, np.array([-1, 1]), np.array([1.0, 2.0]), intercept))
    np.testing.assert_array_equal(used, X.getnnz(axis=0) > 0)
    rows, y = shards.rows(), np.concatenate([y for _, y in tables])
    for name in ("indptr", "indices", "data"):
        np.testing.assert_array_equal(getattr(rows, name), getattr(X, name), err_msg=name, strict=True)
    np.testing.assert_array_equal(rows.label, y > 0)
    np.testing.assert_array_equal(multiplicity(rows.mass, rows.start), np.where(y > 0, 2.0, 1.0))
    np.testing.assert_array_equal(sizes, [np.where(y > 0, 2.0, 1.0).sum() for _, y in tables])
    np.testing.assert_array_equal(rows.start, np.cumsum([0, *(len(y) for _, y in tables)]))
    shards.keep_columns(np.flatnonzero(used))
    np.testing.assert_array_equal(shards.rows().indices, X[:, np.flatnonzero(used)].indices)


# paths and URIs


def test_what_is_a_uri_and_what_is_a_path():
    assert [scheme_of(place) for place in ("s3://b/x.svm", "file:///x", "file:/x", "HTTP://h/x")] == [
        "s3", "file", "file", "http",
    ]  # fmt: skip
    assert [scheme_of(place) for place in ("/x", "x:y.svm", "C:/x", "run1:part.svm", "a//b", "")] == [""] * 6


def test_a_file_uri_is_decoded(toy, on_ray, tmp_path):
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
        ("https://key:word@example.org/", "https://example.org/ names no file, so its format is unknown"),
        ("s3://bucket", "s3://bucket names no file"),
        ("s3://key:sec/ret@bucket/part.svm", "^a s3:// shard has something after a ':' that is no port"),
    ],
)
def test_places_that_are_refused_before_anything_starts(on_ray, place, said):
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


def test_shards_of_a_web_server(toy, on_ray, tmp_path):
    paths = files_of(toy, tmp_path)
    local = GadgetSVC(**SETTINGS).fit_shards(paths)
    with Web(tmp_path) as web:
        model = on_ray().fit_shards([web.url(path.name) for path in paths])
    np.testing.assert_array_equal(local.node_coef_, model.node_coef_)


def test_a_shard_that_the_server_does_not_have(toy, on_ray, tmp_path):
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
            said = rf"/old.svm cannot be read: the server answers {status} .*, a redirect to {scheme}:, but only"
            with pytest.raises(OSError, match=said) as refused:
                read_place(web.url("old.svm"))
            assert "hush" not in str(refused.value)
            assert str(path) not in str(refused.value)


def test_what_a_server_may_do_wrong(toy, tmp_path):
    """No server, half a file, no file of a known format: each names the shard."""
    with Web(tmp_path) as web:
        place = web.url("part-0.svm")
        (tmp_path / "blob").write_bytes(b"\x00\x01\x02")
        with pytest.raises(DataFileError, match=r"^http://127.0.0.1:\d+/blob: its format is unknown"):
            read_place(web.url("blob"))
        files_of(toy, tmp_path)
        web.part = 0.5
        with pytest.raises(OSError, match=r"/part-0.svm cannot be read: .*bytes"):
            read_place(place)
    with pytest.raises(OSError, match=r"/part-0.svm cannot be read: .*refused"):
        read_place(place)


def test_labels_that_are_numbers_here_and_words_there(on_ray, tmp_path):
    """Actors' shards as those that are read here."""
    (tmp_path / "a.svm").write_text("+1 1:2\n-1 1:3\n")
    (tmp_path / "b.csv").write_text("2,ill\n3,well\n")
    with pytest.warns(UserWarning, match=r"a\.svm has the labels -1, 1 and .*b\.csv has the labels ill, well"):
        model = on_ray().fit_shards([tmp_path / "a.svm", tmp_path / "b.csv"])
    assert model.classes_.tolist() == ["-1", "1", "ill", "well"]


# S3


def test_shards_of_a_bucket(toy, on_ray, tmp_path):
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


# Datasets


def test_a_dataset_that_is_not_shared_out(on_ray):
    ended = threading.Event()

    class Slow:
        """Waits for room that does not come while the test runs."""

        count = ended.wait

    Slow.__module__ = "ray.data.slow"
    try:
        with pytest.raises(TimeoutError, match=r"share out the Dataset's rows .* within 0\.5 s"):
            on_ray(start_timeout=0.5).fit_shards(Slow())
    finally:
        ended.set()
        until(lambda: not has_abandoned_call(), 20)  # while there is one, this process cannot use Ray again
