"""`gadget study` and `gadget peer new`: every file can be made without an editor."""

import pytest
from typer.testing import CliRunner

pytest.importorskip("pydantic")

from gadget_svm.cli.app import app
from gadget_svm.cli.study import KEYS
from gadget_svm.peers.process.config import load
from gadget_svm.study.study_file import StudyFile, load_study
from gadget_svm.study.toml_file import sections_of


def gadget(*words):
    return CliRunner().invoke(app, [str(word) for word in words], prog_name="gadget")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{i},{i % 7},{'yes' if i % 2 else 'no'}" for i in range(30)]
    (tmp_path / "rows.csv").write_text("\n".join(["age,size,outcome", *rows]) + "\n")
    return tmp_path


def test_a_study_with_all_options():
    found = gadget(
        "study", "new", "tumours", "--column", "age", "--column", "size", "--class", "yes", "--class", "no",
        "--lam", 0.1, "--algorithm", "gadget", "--no-intercept", "--degree", 6, "--scaling", "max-abs",
        "--scaling-sites", 2,
        "--gap", 0.05, "--site", "a", "--site", "b", "--out", "s.toml",
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    study = load_study("s.toml")
    assert (study.name, study.columns, study.classes, study.lam) == ("tumours", ("age", "size"), ("yes", "no"), 0.1)
    assert (study.algorithm, study.intercept, study.degree) == ("gadget", False, 6)
    assert (study.scaling, study.scaling_sites, study.gap, study.sites) == ("max-abs", 2, 0.05, ("a", "b"))


def test_every_key_of_a_study_has_an_option():
    keys = {f"{name}.{key}" for name, section in sections_of(StudyFile).items() for key in section.model_fields}
    assert keys == {*KEYS, "study.name"}


def test_columns_and_labels_are_taken_from_a_file():
    words = ["--columns-from", "rows.csv", "--label", "outcome", "--lam", 0.1, "--min-sites", 3]
    assert gadget("study", "new", "tumours", *words).exit_code == 0
    study = load_study("study.toml")
    assert (study.columns, study.classes, study.min_sites) == (("age", "size"), ("no", "yes"), 3)
    found = gadget("study", "check", "study.toml", "rows.csv", "--label", "outcome")
    assert found.output == "rows.csv fits study.toml: 30 rows, 2 features.\n"


def test_a_file_without_names_gives_the_number_of_features(folder):
    (folder / "rows.svm").write_text("+1 1:1\n-1 7:2\n")
    words = ["--columns-from", "rows.svm", "--lam", 0.1, "--min-sites", 3]
    assert gadget("study", "new", "s", *words).exit_code == 0
    assert (load_study("study.toml").n_features, load_study("study.toml").columns) == (7, None)
    assert gadget("study", "new", "s", *words, "--features", 9, "--out", "9.toml").exit_code == 0
    assert load_study("9.toml").n_features == 9


def test_check_names_what_differs(folder):
    gadget("study", "new", "s", "--columns-from", "rows.csv", "--label", "outcome", "--lam", 1, "--min-sites", 3)
    (folder / "other.csv").write_text((folder / "rows.csv").read_text().replace("size", "Size"))
    found = gadget("study", "check", "study.toml", "other.csv", "--label", "outcome")
    assert found.exit_code == 2
    assert "other.csv has a column 'Size', the study does not (it has 'size')" in found.output


GOOD_STUDY = ["--class", 1, "--class", 2, "--features", 3, "--min-sites", 3]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--lam", 1, "--min-sites", 3], "error: --class is missing"),
        (
            ["--lam", 1, "--class", 1, "--class", 2, "--min-sites", 3],
            "error: set either --column, the features' names,",
        ),
        (["--lam", 1, "--class", 1, "--class", 2, "--features", 3], "error: set either --site or --min-sites: which"),
        ([*GOOD_STUDY, "--lam", -1], "error: --lam must be greater than 0, got -1.0"),
        ([*GOOD_STUDY, "--lam", 1, "--degree", 3], "error: --degree must be even, got 3"),
        (
            [*GOOD_STUDY, "--lam", 1, "--scaling", "max"],
            "error: --scaling must be 'none', 'max-abs' or 'deviation', got",
        ),
        ([*GOOD_STUDY, "--lam", 1, "--site", "A B"], "error: set either --site or --min-sites: which"),
    ],
)
def test_an_incomplete_study_is_not_written(folder, words, told):
    found = gadget("study", "new", "s", *words)
    assert found.exit_code == 2
    assert told in found.output
    assert not (folder / "study.toml").exists()


@pytest.mark.parametrize("command", ["study", "peer"])
def test_an_existing_file_is_replaced_only_with_overwrite(folder, command):
    words = {
        "study": ["study", "new", "s", "--lam", 1, "--class", 1, "--class", 2, "--features", 3, "--min-sites", 2],
        "peer": ["peer", "new", "a", "--address", "a:1", "--train", "rows.csv", "--no-check"],
    }[command]
    path = folder / f"{command}.toml"
    path.write_text("mine")
    found = gadget(*words)
    assert found.exit_code == 2
    assert f"{command}.toml exists: choose another --out, or --overwrite" in found.output
    assert path.read_text() == "mine"
    assert gadget(*words, "--overwrite").exit_code == 0
    assert path.read_text() != "mine"


def test_a_peer_whose_paths_are_relative_to_where_the_command_is_typed(folder):
    (folder / "north").mkdir()
    found = gadget(
        "peer", "new", "north", "--address", "127.0.0.1:7401", "--join", "127.0.0.1:7402", "--study", "study.toml",
        "--train", "rows.csv", "--test", "/data/test.csv", "--label", "0", "--certs", "ca/peers/north",
        "--reachable", "true", "--zero-based", "--float32", "--metrics-port", 9401, "--log-format", "text",
        "--no-check", "--out", "north/peer.toml",
    )  # fmt: skip
    assert found.exit_code == 0, found.output
    config = load("north/peer.toml")
    assert config.peer.study.resolve() == folder / "study.toml"
    assert config.data.train.resolve() == folder / "rows.csv"
    assert str(config.data.test) == "/data/test.csv"
    assert config.tls.key.resolve() == folder / "ca" / "peers" / "north" / "north.key"
    assert (config.peer.listen, config.peer.reachable, config.data.label) == ("0.0.0.0:7401", True, 0)
    assert (config.data.zero_based, config.peer.float32, config.metrics.port) == (True, True, 9401)
    assert config.peer.model.resolve() == folder / "north" / "model.safetensors"


@pytest.mark.parametrize(
    "words",
    [
        ["study", "new", "s", "--lam", 1, "--class", 1, "--class", 2, "--features", 3, "--min-sites", 2],
        ["peer", "new", "a", "--address", "a:1", "--train", "rows.csv", "--no-check"],
    ],
)
def test_the_folder_of_a_new_file_is_made(folder, words):
    found = gadget(*words, "--out", "new/deep/file.toml")
    assert found.exit_code == 0, found.output
    assert (folder / "new" / "deep" / "file.toml").exists()
    found = gadget(*words, "--out", "rows.csv/file.toml")
    assert found.exit_code == 2
    assert "a part of that path is a file, not a folder" in found.output


def test_a_peer_that_only_dials_out():
    found = gadget(
        "peer", "new", "west", "--reachable", "false", "--join", "a:7400", "--train", "rows.csv", "--no-check"
    )
    assert found.exit_code == 0, found.output
    assert (load("peer.toml").peer.reachable, load("peer.toml").peer.address) == (False, None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a"], "set --address, or --reachable false for a site that accepts no connections"),
        (["a", "--reachable", "false", "--train", "x"], "needs --join"),
        (["a", "--address", "a:1"], "--train is missing"),
        (
            ["a", "--address", "a:1", "--train", "x", "--suspect", 1],
            "--suspect (1) must be longer than --heartbeat (1)",
        ),
        (["a", "--address", "a:7", "--train", "x", "--metrics-port", 7], "--metrics-port and --listen are both 7"),
        (["Ward 3", "--address", "a:1", "--train", "x"], "no peer's name"),
        (
            ["a", "--address", "a:1", "--train", "x", "--reachable", "maybe"],
            "--reachable must be auto, true, false, got 'maybe'",
        ),
        (["a", "--address", "a", "--train", "x"], "error: --address: 'a' is not host:port, such as"),
        (["a", "--address", "0.0.0.0:1", "--train", "x"], "the one by which others reach it"),
    ],
)
def test_an_impossible_peer_is_not_written(folder, words, told):
    found = gadget("peer", "new", *words)
    assert found.exit_code == 2
    assert told in found.output
    assert not (folder / "peer.toml").exists()


@pytest.fixture
def a_study(folder):
    """A study that waits for north and south, and rows that fit it."""
    words = ["--columns-from", "rows.csv", "--label", "outcome", "--lam", 0.1, "--site", "north", "--site", "south"]
    assert gadget("study", "new", "tumours", *words).exit_code == 0
    return folder


def new_peer(*words, name="north"):
    return gadget("peer", "new", name, "--address", "a:1", "--label", "outcome", *words)


def test_the_rows_of_a_new_peer_are_compared_with_the_study(a_study):
    found = new_peer("--train", "rows.csv")
    assert (found.exit_code, found.output.splitlines()[0]) == (0, "rows.csv fits study.toml: 30 rows, 2 features.")
    assert (a_study / "peer.toml").exists()


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        (("size", "Size"), [], "other.csv has a column 'Size', the study does not (it has 'size')"),
        (("outcome", "result"), [], "other.csv has no label column 'outcome'. It has: age, size, result"),
        (("yes", "maybe"), [], "other.csv has the label 'maybe', which is not among the classes"),
        (("", ""), ["--train", "nowhere.csv"], "error: --train: there is no file nowhere.csv: "),
        (("", ""), ["--test", "nowhere.csv"], "error: --test: there is no file nowhere.csv: "),
        (("", ""), ["--study", "nowhere.toml"], "error: --study: there is no file nowhere.toml: "),
        (("", ""), ["--certs", "ca/peers/north"], "no file ca/peers/north/north.pem: 'gadget certs issue north' makes"),
    ],
)
def test_a_peer_that_does_not_fit_the_study_is_not_written(a_study, change, words, told):
    (a_study / "other.csv").write_text((a_study / "rows.csv").read_text().replace(*change))
    found = new_peer("--train", "other.csv", *words)
    assert found.exit_code == 2
    assert told in found.output
    assert not (a_study / "peer.toml").exists()
    assert new_peer("--train", "other.csv", *words, "--no-check").exit_code == 0


@pytest.mark.usefixtures("a_study")
def test_a_name_that_the_study_does_not_wait_for_is_a_warning():
    found = new_peer("--train", "rows.csv", name="nort")
    assert found.exit_code == 0
    assert "warning: study.toml waits for the sites north, south, and nort is none of them" in found.output


def test_certificates_of_several_peers_in_one_command(folder):
    pytest.importorskip("cryptography")
    assert gadget("certs", "init", "ca").exit_code == 0
    found = gadget("certs", "issue", "north", "south", "--host", "127.0.0.1")
    assert found.exit_code == 0, found.output
    assert (folder / "ca" / "peers" / "north" / "north.key").exists()
    assert (folder / "ca" / "peers" / "south" / "revoked.pem").exists()


def test_a_certificate_must_cover_the_address_of_a_new_peer(folder):
    certificates = pytest.importorskip("gadget_svm.authority.certificates", exc_type=ImportError)
    certificates.init_ca(folder / "ca")
    certificates.issue(folder / "ca", "north", ["127.0.0.1"], out=folder / "north")
    gadget("study", "new", "s", "--columns-from", "rows.csv", "--label", "outcome", "--lam", 1, "--min-sites", 3)
    words = ["peer", "new", "north", "--certs", "north", "--train", "rows.csv", "--label", "outcome", "--address"]
    found = gadget(*words, "10.0.0.9:7400")
    assert found.exit_code == 2
    assert "north.pem does not cover the address 10.0.0.9:7400 (it is for north, 127.0.0.1)" in found.output
    assert "gadget certs issue north --overwrite --host 127.0.0.1 --host 10.0.0.9" in found.output
    assert not (folder / "peer.toml").exists()
    assert gadget(*words, "127.0.0.1:7400").exit_code == 0


@pytest.mark.parametrize(
    "command", [["study", "check", "study.toml"], ["peer", "new", "a", "--address", "a:1", "--train"]]
)
def test_a_column_that_may_be_the_label_is_named_as_the_option_is_typed(folder, command):
    gadget("study", "new", "s", "--columns-from", "rows.csv", "--label", "outcome", "--lam", 1, "--min-sites", 3)
    rows = [f"{'yes' if i % 2 else 'no'},{i},{i % 7}" for i in range(30)]
    (folder / "other.csv").write_text("\n".join(["outcome,age,size", *rows]) + "\n")
    found = gadget(*command, "other.csv")
    assert found.exit_code == 2
    assert "no column 'outcome': leave it out, or, if it is the label, say --label outcome" in found.output
