"""`gadget train` on shards, one a node: read here, or by the actors of a Ray."""

import json
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from gadget_svm import GadgetSVC, load_model
from gadget_svm.cli import train_run
from gadget_svm.cli.progress import Interruption
from gadget_svm.cli.train import TrainRequest, expand_ranges
from gadget_svm.estimator.remote_fit import remote_problem
from gadget_svm.estimator.shards import Shards
from support.cli_kit import gadget
from support.threaded_actors import Stage

LAM = 0.05
QUICK = ("--lam", LAM, "--max-iter", 40, "--stopping", "none")
NAMES = ("a", "b", "truth", "c", "d", "e")


def trained(*arguments):
    """What the command says in JSON."""
    result = gadget("train", *arguments, "--json", "--quiet")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def refused(*arguments):
    """The one line of an error."""
    result = gadget("train", *arguments, "--quiet")
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    assert result.stdout == ""
    return line


def write_svm(path, X, y, first=1):
    lines = (f"{a} " + " ".join(f"{j + first}:{v}" for j, v in enumerate(x) if v) for x, a in zip(X, y, strict=True))
    path.write_text("\n".join(lines) + "\n")
    return path


def write_csv(path, X, y):
    """A table whose label is neither last nor called so."""
    lines = [",".join(map(str, [*x[:2], a, *x[2:]])) for x, a in zip(X.tolist(), y.tolist(), strict=True)]
    path.write_text("\n".join([",".join(NAMES), *lines]) + "\n")
    return path


@pytest.fixture
def parts(toy, tmp_path, monkeypatch):
    """Three svmlight files of 30, 20 and 10 rows, in the folder the commands run in."""
    monkeypatch.chdir(tmp_path)
    for i in range(3):
        write_svm(tmp_path / f"part-{i}.svm", toy.X[toy.sites == i], toy.y[toy.sites == i])
    return [f"part-{i}.svm" for i in range(3)]


@pytest.fixture
def tables(toy, tmp_path, monkeypatch):
    """The same rows in CSV files, with three classes."""
    monkeypatch.chdir(tmp_path)
    for i in range(3):
        write_csv(tmp_path / f"part-{i}.csv", toy.X[toy.sites == i], toy.three[toy.sites == i])
    return [f"part-{i}.csv" for i in range(3)]


def python(shards, **more):
    return GadgetSVC(lam=LAM, max_iter=40, stopping=None, random_state=0).fit_shards(shards, **more)


def assert_same(one, other):
    for name in ("coef_", "intercept_", "node_coef_", "node_intercept_", "classes_"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name, strict=True)


def test_shards_are_nodes(parts, tmp_path):
    """The bits are those of fit_shards."""
    run = trained(*parts, *QUICK, "--out", "out", "--report", "r.html")
    assert_same(load_model("out/model.safetensors"), python(parts))
    assert [node["rows"] for node in run["nodes"]] == [30, 20, 10]
    assert run["parameters"]["nodes"] == 3
    about = run["dataset"]
    assert (about["name"], about["rows"], about["features"], about["shards"]) == ("3 shards", 60, 5, parts)
    assert run["average"]["train_objective"] == pytest.approx(run["history"][-1]["objective"], rel=1e-12)
    assert run.pop("history")
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == run
    assert "3 shards" in (tmp_path / "r.html").read_text(encoding="utf-8")
    other = trained(*parts[::-1], *QUICK, "--nodes", 3)
    assert [node["rows"] for node in other["nodes"]] == [10, 20, 30]


def test_table_of_shards(parts):
    result = gadget("train", *parts, *QUICK)
    assert "3 shards: 60 rows, 5 features, lam 0.05 (read from part-0.svm to part-2.svm)" in result.stderr
    rows = [line.split("│")[1:3] for line in result.stdout.splitlines() if line.startswith("│")]
    assert [tuple(cell.strip() for cell in row) for row in rows] == [
        ("0", "30"), ("1", "20"), ("2", "10"), ("average", "60"),
    ]  # fmt: skip


def test_one_file_or_shards():
    uri = "s3://bucket/part-0.svm"
    assert TrainRequest(["part-0.svm"]).shards == TrainRequest([uri]).shards == []
    assert TrainRequest(["a.svm", "b.svm"]).shards == ["a.svm", "b.svm"]
    one = TrainRequest([uri], engine="ray")
    assert (one.name, one.shards) == ("1 shard", [uri])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["part-0.svm", "adult"], "'adult' is a named data set: train on it alone, or write ./adult for a file"),
        (["part-0.svm", "folder"], "folder is a folder: name its files, such as folder/*.svm"),
        (["folder"], "folder is a folder: name its files, such as folder/*.svm"),
        (["part-0.svm", "prat-*.svm"], "no file prat-*.svm: check the spelling"),
        (["prat-[0-9].svm"], "no file prat-[0-9].svm: check the spelling"),
        (["part-*.svm"], "part-*.svm is a pattern, which the shell expands: leave out the quotes"),
        (["s3://bucket/part-*.svm", "--engine", "ray"], "name each file, or write part-{0..9}.svm"),
        (["part-0.svm", "part-0.svm"], "part-0.svm is given twice: each node has its own rows; omit one"),
        (["part-0.svm", "./folder/../part-0.svm"], "part-0.svm, also as ./folder/../part-0.svm, is given twice"),
        (["part-0.svm", "link.svm"], "part-0.svm, also as link.svm, is given twice"),
        (["part-0.svm", "file:LINK", "--engine", "ray"], "link.svm, is given twice"),
        (["s3://b/x.svm", "s3://b/x.svm", "--engine", "ray"], "s3://b/x.svm is given twice"),
        (["PARTS", "--nodes", "4"], "--nodes 4: every shard is a node, and there are 3: leave out --nodes"),
        (["PARTS", "--partition", "sorted"], "omit --partition, or give one file"),
        (["part-0.svm", "absent.svm"], "no file absent.svm: check the spelling"),
        (["PARTS", "--positive", "5"], "no row has the label '5'. The labels are: 0, 1."),
        (["PARTS", "--test", "absent.svm"], "no file absent.svm"),
        (["PARTS", "--test", "file:FOLDER/absent.svm"], "no file FOLDER/absent.svm"),
        (["PARTS", "--test", "file://h/x.svm"], "file://h/x.svm is a file of the machine 'h'"),
        (["PARTS", "--test", "strange.svm"], "the test rows have the label 7, and the training rows only have"),
        (["PARTS", "--test", "zero.svm"], "zero.svm has a feature id 0, ids from 1 were expected"),
        (["PARTS", "--test", "narrow.csv"], "narrow.csv has 2 features and part-0.svm has 5: use the same columns"),
    ],
)
def test_refused(parts, tmp_path, arguments, said):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.svm").symlink_to(tmp_path / "part-0.svm")
    (tmp_path / "strange.svm").write_text("7 1:1\n")
    (tmp_path / "zero.svm").write_text("1 0:1\n")
    (tmp_path / "narrow.csv").write_text("1,2,1\n3,4,0\n")
    given = [word.replace("LINK", str(tmp_path / "link.svm")).replace("FOLDER", str(tmp_path)) for word in arguments]
    assert said.replace("FOLDER", str(tmp_path)) in refused(*(parts if given[0] == "PARTS" else given[:1]), *given[1:])


@pytest.mark.parametrize("data", ["one file", "shards"])
def test_file_uri(toy, parts, tmp_path, data):
    shards = parts if data == "shards" else parts[:1]
    (tmp_path / "50 %").mkdir()
    path = write_svm(tmp_path / "50 %" / "test.svm", toy.X[:20], toy.y[:20])
    by_path, by_uri = (trained(*shards, *QUICK, "--test", place) for place in (path, path.as_uri()))
    assert by_uri["dataset"]["test_rows"] == 20
    assert by_uri["average"] == by_path["average"]


def test_name_like_a_pattern(parts, tmp_path):
    (tmp_path / parts[0]).rename(tmp_path / "part[0]*.svm")
    assert [node["rows"] for node in trained("part[0]*.svm", *parts[1:], *QUICK)["nodes"]] == [30, 20, 10]


@pytest.mark.parametrize("width", [3, 5, 9])
def test_width_of_test_rows(toy, parts, tmp_path, width):
    """A narrower file is padded; features of a wider one that no shard has count for nothing."""
    X = np.zeros((20, width))
    X[:, :5] = toy.X[:20, :width]
    X[:, 5:] = 100.0
    write_svm(tmp_path / "test.svm", X, toy.y[:20])
    run = trained(*parts, "--test", "test.svm", *QUICK, "--out", "out")
    model = load_model("out/model.safetensors")
    assert_same(model, python(parts))
    seen = np.zeros((20, 5))
    seen[:, : min(5, width)] = X[:, :5]
    right = [model.node(i).score(seen, toy.y[:20]) for i in range(3)]
    assert [node["test_accuracy"] for node in run["nodes"]] == pytest.approx(right, abs=1e-12)
    assert run["average"]["test_accuracy"] == pytest.approx(model.score(seen, toy.y[:20]), abs=1e-12)
    assert run["history"][-1]["test_error"] == pytest.approx(1 - model.score(seen, toy.y[:20]), abs=1e-12)
    assert run["dataset"]["test_rows"] == 20


def test_ids_of_test_rows(toy, parts, tmp_path):
    """From 0, as a shard has an id 0, though the test file has none."""
    for i in range(3):
        write_svm(tmp_path / parts[i], toy.X[toy.sites == i], toy.y[toy.sites == i], first=0)
    X = toy.X[:20].copy()
    X[:, 0] = 0
    write_svm(tmp_path / "test.svm", X, toy.y[:20], first=0)
    run = trained(*parts, "--test", "test.svm", *QUICK)
    assert run["average"]["test_accuracy"] == pytest.approx(python(parts).score(X, toy.y[:20]), abs=1e-12)


def test_label_and_positive(toy, tables, tmp_path):
    write_csv(tmp_path / "test.csv", toy.X[:20], np.full(20, 1))  # none of class 2
    told = ("--label", "truth", "--positive", "2")
    run = trained(*tables, *told, "--test", "test.csv", *QUICK, "--out", "out")
    model = load_model("out/model.safetensors")
    pairs = [(toy.X[toy.sites == i], np.where(toy.three == 2, 1, -1)[toy.sites == i]) for i in range(3)]
    assert_same(model, python(pairs))
    assert_same(model, python(tables, label="truth", positive="2"))
    assert run["dataset"]["classes"] == [-1, 1]
    assert run["average"]["test_accuracy"] == pytest.approx(model.score(toy.X[:20], np.full(20, -1)), abs=1e-12)
    (tmp_path / "test.csv").write_text("a,b,truth,d,c,e\n1,2,1,3,4,5\n")
    message = refused(*tables, *told, "--test", "test.csv")
    assert "part-0.csv has the column 'c' where test.csv has 'd'" in message


class Pressed(Interruption):
    """Ctrl-C, the third time that somebody asks."""

    times = 0

    @property
    def requested(self):
        self.times += self.stops_cleanly
        self.signal = signal.SIGINT if self.times > 2 else 0
        return self.times > 2

    @requested.setter
    def requested(self, value):
        pass


def interrupted(monkeypatch, *arguments):
    """A training that is interrupted: its model and what it said."""
    with monkeypatch.context() as now:
        now.setattr(train_run, "Interruption", Pressed)
        result = gadget("train", *arguments, "--max-iter", 10**9, "--stopping", "none", "--json", "--out", "kept")
    assert result.exit_code == 130, result.output
    run, model = json.loads(result.stdout), load_model("kept/model.safetensors")
    assert run["stopped_by"] == "interrupted"
    assert "the models so far are kept in kept" in result.stderr
    assert model.n_iter_ == run["n_iter"] > 0
    return model, run


def test_ctrl_c(parts, monkeypatch):
    model, _ = interrupted(monkeypatch, *parts)
    assert len(model.node_coef_) == 3


# with Ray


@pytest.fixture(scope="module")
def cluster():
    """Ray once for the tests here."""
    from support.ray_kit import own_ray

    with own_ray():
        yield


RAY = ("--engine", "ray", "--engine-option", "actors=2")


def test_ray_same_bits(toy, parts, tmp_path, monkeypatch):
    """What takes the rows is left out; all else is as when they are read here. The actors are threads."""
    Stage(monkeypatch, toy)
    write_svm(tmp_path / "test.svm", toy.X[:20], toy.y[:20])
    told = ("--test", "test.svm", "--lam", LAM, "--tol", 0.02)
    here = trained(*parts, *told, "--out", "here")
    monkeypatch.setattr("gadget_svm.estimator.svc.stack_shards", lambda *_: pytest.fail("rows were read here"))
    monkeypatch.setattr("gadget_svm.cli.train_data.stack_shards", lambda *_: pytest.fail("rows were read here"))
    result = gadget("train", *parts, *told, *RAY, "--out", "there", "--report", "r.html")
    assert result.exit_code == 0, result.output
    assert "3 shards: 60 rows, 5 features, lam 0.05 (read by the actors)" in result.stderr
    assert_same(load_model("here/model.safetensors"), load_model("there/model.safetensors"))
    there = json.loads((tmp_path / "there" / "summary.json").read_text())
    for name in ("n_iter", "converged", "gap_bound", "messages", "bytes", "disagreement", "why"):
        assert there[name] == here[name], name
    assert there["dataset"] == {**here["dataset"], "note": "read by the actors"}
    assert there["average"] == pytest.approx(here["average"], rel=1e-12)
    unknown = {"train_objective": None, "train_accuracy": None}
    assert there["nodes"] == [{**node, **unknown} for node in here["nodes"]]
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    assert [cell.strip() for cell in rows[1]][:3] == ["1", "20", "-"]
    assert "3 shards" in (tmp_path / "r.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("cluster")
def test_ray_uris_and_resume(tables, tmp_path, monkeypatch):
    """Ctrl-C keeps the models, and from the checkpoint the same command goes on to the bits of a whole run."""
    from support.web_server import Web

    told = ("--label", "truth", "--positive", "2", "--lam", LAM)
    saved = (*RAY, "--engine-option", f"checkpoint_dir={tmp_path / 'saved'}")
    with Web(tmp_path) as web:
        places = [web.url(name) + "?key=hushhush" for name in tables]
        model, run = interrupted(monkeypatch, *places, *told, *saved)
        assert run["dataset"]["shards"] == [web.url(name) for name in tables]
        assert "hushhush" not in json.dumps(run)
        total = ("--stopping", "none", "--max-iter", model.n_iter_ + 20)
        further = (*saved, "--engine-option", "resume=true", *total)
        again = gadget("train", *places, *told, *further, "--out", "whole", "--report", "r.html")
        assert again.exit_code == 0, again.output
        assert "for the average only, because the actors hold the rows" in again.stdout
        assert "hushhush" not in again.output + (tmp_path / "r.html").read_text(encoding="utf-8")
    trained(*tables, *told, *total, "--out", "here")
    assert_same(load_model("here/model.safetensors"), load_model("whole/model.safetensors"))
    assert load_model("whole/model.safetensors").classes_.tolist() == [-1, 1]


def test_guessed_label_is_named_once(tables, tmp_path, caplog):
    for name in tables:
        (tmp_path / name).write_text("".join(f"{i},{i % 2}\n" for i in range(10)))
    shards = Shards(tables)
    remote_problem(SimpleNamespace(names=tables, ask=lambda what, *given: [getattr(shards, what)(*given)]), None, True)
    (said,) = [record.getMessage() for record in caplog.records]
    assert "part-0.csv has no header: its last column, number 1 counted from 0, is taken as the label" in said


def test_range_as_in_bash(parts):
    ranged = trained("part-{0..2}.svm", *QUICK)
    listed = trained(*[f"part-{i}.svm" for i in range(3)], *QUICK)
    assert ranged["dataset"]["shards"] == listed["dataset"]["shards"] == [f"part-{i}.svm" for i in range(3)]
    assert ranged["average"] == listed["average"]
    assert len(parts) == 3


@pytest.mark.parametrize(
    ("typed", "names"),
    [
        ("s3://b/part-{8..11}.svm", [f"s3://b/part-{i}.svm" for i in range(8, 12)]),
        ("part-{08..10}", ["part-08", "part-09", "part-10"]),
        ("part-{2..1}", ["part-2", "part-1"]),
        ("{0..1}/part-{0..1}", ["0/part-0", "0/part-1", "1/part-0", "1/part-1"]),
        ("part-{a,b}", ["part-{a,b}"]),
    ],
)
def test_ranges(typed, names):
    assert expand_ranges([typed]) == names
