"""The reproduction's machinery on small data: cells are kept, tables say what they say, claims follow the rows."""

import csv
import json
import math

import pytest
from typer.testing import CliRunner

from gadget_svm import load_dataset
from gadget_svm.cli.app import app
from gadget_svm.reproduction import published_numbers
from gadget_svm.reproduction.baselines import certified_optimum
from gadget_svm.reproduction.claims import discussion
from gadget_svm.reproduction.methods import METHODS, Budget, run_network, run_to_gap
from gadget_svm.reproduction.network_study import Setup, _faults, run_setup, setups, study_row, trials_of
from gadget_svm.reproduction.page import everything
from gadget_svm.reproduction.reproduce import PARTS, Reproduction
from gadget_svm.reproduction.store import Store
from gadget_svm.reproduction.tables import COLUMNS, better, markdown, spread, summarise, write_csv
from gadget_svm.reproduction.trials import Trial, fingerprint
from gadget_svm.topologies import build

LAM = 1e-2


@pytest.fixture(scope="module")
def cancer():
    return load_dataset("breast-cancer")


class Small(Reproduction):
    """A reproduction whose only data set is built in, under a name of the paper's."""

    def budget(self, name):  # noqa: ARG002
        return Budget(200, 10, 1, 0.5)


@pytest.fixture
def run(tmp_path, cancer):
    small = Small(tmp_path, nodes=4, trials=2, quick=True)
    small.__dict__["sets"] = {"adult": cancer}
    small.missing["gisette"] = "get it <there>"
    return small


# cells


def test_a_cell_is_computed_once(tmp_path):
    store, calls = Store(tmp_path), []
    key = {"method": "m", "data": "d", "trial": 0}
    for _ in range(3):
        assert store.cell(key, lambda: calls.append(1) or {"x": 1.5}) == {"x": 1.5}
    assert len(calls) == 1


@pytest.mark.parametrize("change", [{"trial": 1}, {"lam": 0.2}, {"extra": True}])
def test_another_key_is_another_cell(tmp_path, change):
    store = Store(tmp_path)
    key = {"method": "m", "data": "d", "trial": 0, "lam": 0.1}
    store.cell(key, lambda: {"x": 1})
    assert store.cell(key | change, lambda: {"x": 2}) == {"x": 2}


@pytest.mark.parametrize("damage", ["", "{", '{"result": {"x": 9}}', "[1]", "null result", "empty result"])
def test_a_damaged_cell_is_computed_anew(tmp_path, damage):
    store = Store(tmp_path)
    key = {"method": "m", "data": "d"}
    store.cell(key, lambda: {"x": 1})
    (file,) = tmp_path.glob("*.json")
    whole = json.loads(file.read_text())
    file.write_text(
        {
            "null result": json.dumps(whole | {"result": None}),
            "empty result": json.dumps(whole | {"result": {}}),
        }.get(damage, damage)
    )
    assert store.cell(key, lambda: {"x": 2}) == {"x": 2}
    assert json.loads(file.read_text())["result"] == {"x": 2}


def test_a_cell_that_fails_leaves_nothing(tmp_path):
    store = Store(tmp_path)

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.cell({"method": "m", "data": "d"}, interrupted)
    assert not list(tmp_path.iterdir())


def test_an_interrupted_run_goes_on_where_it_stopped(run):
    """Finished cells are kept; only the rest is computed by the same command again."""
    done = []
    cells = list(run.cells("table2"))
    for cell in cells[:3]:
        run.result(cell)
    run.tell = done.append
    for cell in cells:
        run.result(cell)
    assert len(done) == len(cells) - 3


def test_the_fingerprint_sees_a_changed_value(cancer):
    before = fingerprint(cancer)
    cancer.X.data[0] += 1e-9
    changed = fingerprint(cancer)
    cancer.X.data[0] -= 1e-9
    assert before != changed


# tables


def test_the_papers_deviation():
    """Table 2's caption: "estimated by sqrt(Var(Nodes) + Var(Trials))"."""
    assert spread([[1.0, 3.0], [5.0, 7.0]]) == pytest.approx(math.sqrt(1.0 + 4.0))
    assert spread([[2.0, 2.0]]) == 0.0


def test_lexicographic_comparison():
    """Section 4.1: "Comparison of pairs (A_1,T_1) and (A_2,T_2) will simply be lexicographic"."""

    def row(method, accuracy, seconds):
        return {"method": method, "accuracy_mean": accuracy, "seconds_mean": seconds}

    assert better(row("a", 90.0, 9.0), row("b", 89.0, 1.0)) == "a"
    assert better(row("a", 90.0, 9.0), row("b", 90.0, 1.0)) == "b"
    assert better(row("a", 90.01, 9.0), row("b", 90.0, 1.0)) == "b", "a hundredth of a per cent is a tie"


def test_a_row_has_the_columns_asked_for(run):
    rows = run.table2()
    wanted = {"dataset", "method", "accuracy_mean", "accuracy_sd", "seconds_mean", "seconds_sd", "objective_mean",
              "iterations_mean", "epsilon", "paper_accuracy", "paper_accuracy_sd", "paper_seconds"}  # fmt: skip
    assert wanted <= set(COLUMNS) <= set(rows[0])
    assert rows[0]["paper_accuracy"] == 77.04
    assert {row["method"] for row in rows} >= {
        "gadget",
        "gadget (last iterate)",
        "pegasos",
        "as-published",
        "liblinear",
    }


def test_csv_loses_no_digit(tmp_path):
    path = write_csv(tmp_path / "t.csv", [{"dataset": "d", "x": 0.1 + 0.2}])
    with path.open() as file:
        assert float(next(csv.DictReader(file))["x"]) == 0.1 + 0.2


def test_markdown_leaves_what_is_unknown_empty():
    assert markdown([{"a": None, "accuracy_mean": 1.234567}], {"a": "A", "accuracy_mean": "B"}).endswith("|  | 1.23 |")


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_what_is_no_number_is_left_empty(value):
    assert markdown([{"a": value}], {"a": "A"}).endswith("|  |")


def test_last_iterates_are_judged_by_themselves():
    result = {"own": [90.0], "whole": [91.0], "objective": [1.0], "own_last": [80.0], "whole_last": [81.0],
              "objective_last": [2.0], "seconds": [1.0], "iterations": [5], "epsilon": 0.1, "messages": 3}  # fmt: skip
    assert summarise("d", "m", [result])["accuracy_mean"] == 90.0
    assert summarise("d", "m", [result], last=True)["objective_mean"] == 2.0


def test_published_numbers_are_the_papers():
    """A few of Tables 2, 3 and of the appendix, typed in once more."""
    assert published_numbers.TABLE2["ccat", "pegasos"] == (0.29, 0.031, 76.21, 0.04)
    assert published_numbers.TABLE3["usps", "svm-perf"] == (18.64, 22.89, 91.62, 1.90)
    assert published_numbers.TABLE4["gisette", "gadget"].accuracy == 55.43
    for name, factor in published_numbers.SPEEDUP.items():
        mine, central = (
            published_numbers.TABLE4[name, "gadget"].seconds,
            published_numbers.TABLE4[name, "pegasos"].seconds,
        )
        assert mine / central == pytest.approx(factor, abs=0.01), "distributed time over centralised time"


# methods and studies


@pytest.mark.parametrize("method", [name for name in METHODS if name != "optimum"])
def test_every_method_learns(cancer, method):
    """Each method of the tables, on four nodes: far better than the larger class, and one figure per node."""
    result = METHODS[method](Trial(cancer, LAM, 4, 0), Budget(2000, 60, 5, 5.0))
    assert len(result["own"]) == len(result["objective"]) in (1, 4)
    floor = 70 if method == "as-published" else 88
    assert min(result["whole"]) > floor
    assert all(value > 0 for value in result["seconds"])


def test_no_method_is_below_the_certified_optimum(cancer):
    trial = Trial(cancer, LAM, 4, 0)
    best = METHODS["optimum"](trial, Budget())
    assert 0 <= best["gap"] <= 1e-4
    for method in ("gadget", "mom-dsvm", "svm-perf-all", "liblinear"):
        assert min(METHODS[method](trial, Budget(500, 60))["objective"]) >= best["bound"]


def test_a_traced_run_ends_like_an_untraced_one(cancer):
    """Looking on the way changes nothing but the trace."""
    trial = Trial(cancer, LAM, 4, 0)
    plain, traced = (METHODS[method](trial, Budget(300)) for method in ("gadget", "gadget-trace"))
    assert plain["objective"] == traced["objective"]
    assert len(traced["trace"]) > 5
    seconds = [point[0] for point in traced["trace"]]
    assert seconds == sorted(seconds)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("lam", [1e-1, 1e-2, 1e-4])
def test_mom_dsvm_keeps_its_promise(cancer, lam, seed):
    """Every node is within one per cent of the optimum certified apart, and never farther than it proves."""
    best = certified_optimum(cancer.X, cancer.y, lam, 1e-5)
    result = METHODS["mom-dsvm"](Trial(cancer, lam, 4, seed), Budget())
    worst = max(result["objective"])
    assert result["converged"] == [True] * 4
    assert result["gap"] <= result["promise"] == 0.01
    assert worst <= 1.01 * best.objective
    assert worst - best.objective <= result["epsilon"] + 1e-12
    assert worst / best.objective - 1 <= result["gap"] + 1e-12
    assert result["iterations"][0] < Budget().admm_iterations
    assert result["messages"] == result["iterations"][0] * Trial(cancer, lam, 4, seed).network.n_edges


def test_mom_dsvm_does_not_claim_what_it_did_not_reach(cancer):
    result = METHODS["mom-dsvm"](Trial(cancer, 1e-4, 4, 0), Budget(admm_iterations=12))
    assert result["iterations"] == [12] * 4
    assert result["gap"] > result["promise"]
    assert not any(result["converged"])


def test_looking_at_the_gap_changes_nothing(cancer):
    trial = Trial(cancer, LAM, 4, 0)
    watched, alone = run_to_gap(trial, "mom-dsvm", 0.0, 90), run_network(trial, "mom-dsvm", 90)
    assert watched["objective"] == alone["objective"]
    assert watched["messages"] == alone["messages"]


def test_a_smaller_promise_takes_more_iterations(cancer):
    trial = Trial(cancer, LAM, 4, 0)
    rough, fine = (run_to_gap(trial, "mom-dsvm", promise, 4000) for promise in (0.1, 1e-4))
    assert fine["iterations"][0] > rough["iterations"][0]
    assert fine["gap"] <= 1e-4


def test_dead_nodes_are_not_judged(cancer):
    dead = run_setup(Setup("crash", nodes=10, level=3, iterations=200), cancer, LAM)
    whole = run_setup(Setup("crash", nodes=10, level=0, iterations=200), cancer, LAM)
    assert dead["messages"] < whole["messages"]
    assert len(dead["accuracies"]) == 7
    assert min(dead["accuracies"]) > 80


def test_a_row_of_the_study_is_the_mean_of_its_trials():
    def record(*accuracies):
        return {"accuracies": accuracies, "objective": 1.0, "disagreement": 0.1 * len(accuracies), "messages": 5,
                "bytes": 7, "spectral_gap": 0.5}  # fmt: skip

    row = study_row(Setup("crash"), [record(80.0, 90.0), record(84.0)])
    assert (row["trials"], row["accuracy_mean"], row["accuracy_min"], row["accuracy_min_sd"]) == (2, 84.5, 82.0, 2.0)
    assert row["accuracy_sd"] == spread([[80.0, 90.0], [84.0]])
    assert row["disagreement"] == pytest.approx(0.15)
    assert study_row(Setup("crash"), [record(80.0)])["accuracy_min_sd"] is None, "one trial has no deviation"


@pytest.mark.parametrize("nodes", [2, 3, 6, 10, 12, 33])
def test_the_study_is_of_the_nodes_asked_for(nodes):
    """And of graphs that can be made of so many, of crashes that leave some."""
    chosen = list(setups(nodes=nodes))
    assert {s.nodes for s in chosen if s.study in ("loss", "crash")} == {nodes}
    (shared,) = {s.nodes for s in chosen if s.study == "topology"}
    assert nodes <= shared < max(5, 2 * nodes)
    for setup in chosen:
        if setup.study == "topology":
            assert build(setup.topology, setup.nodes, seed=0).n == shared
        if setup.study == "crash" and setup.level > 0:
            dead = _faults(setup)["crash"]["nodes"]
            assert len(set(dead)) == setup.level < nodes
            assert max(dead) < nodes


def test_large_networks_are_tried_once():
    assert trials_of(Setup("size", nodes=1000), 5) == 1
    assert trials_of(Setup("size", nodes=100), 5) == 5


def test_the_network_study_uses_nodes_and_trials(run, monkeypatch):
    asked = []

    def few(quick, nodes):
        asked.append((quick, nodes))
        return [Setup("loss", "ring", nodes, iterations=50)]

    monkeypatch.setattr("gadget_svm.reproduction.reproduce.setups", few)
    (row,) = run.network()
    assert (row["nodes"], row["trials"]) == (run.nodes, run.trials) == (4, 2)
    assert set(asked) == {(True, 4)}
    assert len(list(run.network_steps())) == 2


def test_lost_messages_hurt_plain_push_sum_only(cancer):
    rows = {
        gossip: run_setup(Setup("loss", gossip=gossip, level=30, iterations=2000), cancer, LAM)
        for gossip in ("push-sum", "running-sum")
    }
    assert rows["running-sum"]["objective"] < rows["push-sum"]["objective"]


def test_the_study_covers_what_the_paper_left_open():
    """Section 5: "resilience to node failures, impact of the underlying network structure"."""
    studies = {setup.study for setup in setups()}
    assert studies == {"topology", "size", "loss", "crash"}


# the whole


def test_everything_is_written(run, tmp_path, monkeypatch):
    monkeypatch.setattr("gadget_svm.reproduction.reproduce.setups", lambda *_: [
        Setup(study, nodes=4, topology="ring", iterations=50, gossip=gossip)
        for study in ("topology", "size", "loss", "crash")
        for gossip in ("push-sum", "running-sum")
    ])  # fmt: skip
    made = everything(run, PARTS, tmp_path / "docs" / "reproduction.md")
    for part in ("table1", "table2", "table3", "table4", "network"):
        with (tmp_path / f"{part}.csv").open() as file:
            assert list(csv.DictReader(file))
    page = made["html"].read_text()
    assert "&lt;there&gt;" in page, "what is missing is listed, escaped"
    assert page.count("data:image/png;base64,") == 2
    assert "http" not in page.replace("data:image", ""), "nothing is fetched when the page is opened"
    text = (tmp_path / "docs" / "reproduction.md").read_text()
    assert "../figures/adult.png" in text
    assert "77.04" in text


def test_claims_follow_the_rows(run):
    """The discussion's verdicts are computed: other rows, other verdicts."""
    rows = {"table2": run.table2(), "table3": run.table3()}
    for accuracy, verdict in ((99.0, "holds."), (1.0, "does not hold.")):
        for row in rows["table2"]:
            if row["method"] == "gadget":
                row["accuracy_mean"] = accuracy
        assert f"**GADGET reaches the accuracy the paper prints for it**: {verdict}" in discussion(rows)


VERDICTS = {  # a claim's first words, and a change of the rows that turns its verdict
    "GADGET reaches": ("table2", "gadget", "accuracy_mean", 1.0),
    "Averaged GADGET": ("table2", "gadget", "accuracy_mean", 1.0),
    "The conjecture": ("table2", "gadget", "winner", "pegasos"),
    '"The training time': ("table2", "pegasos", "seconds_mean", 1e9),
    '"GADGET SVM has': ("table3", "svm-sgd", "accuracy_mean", 200.0),
    '"SVM SGD also': ("table3", "svm-sgd", "seconds_mean", 1e9),
    '"SVM-Perf was': ("table3", "svm-perf", "seconds_mean", 0.0),
    "SVM-Perf on all": ("table2", "svm-perf (all rows)", "objective_mean", 1e3),
    "Pegasos is within": ("table2", "pegasos", "promise", -1e9),
    "MoM-DSVM ends within": ("table3", "mom-dsvm", "worst_gap_percent", 50.0),
    "MoM-DSVM broadcasts": ("table3", "mom-dsvm", "messages", 0),
    "With loading": ("table4", "gadget", "speedup", 1.5),
}


@pytest.mark.parametrize("claim", VERDICTS)
def test_every_verdict_can_fall(run, claim):
    rows = {"table2": run.table2(), "table3": run.table3(), "table4": run.table4()}
    table, method, column, value = VERDICTS[claim]
    for row in rows[table]:
        if row["method"] == method:
            row[column] = value
    (line,) = [line for line in discussion(rows).splitlines() if line.startswith(f"- **{claim}")]
    assert "does not hold" in line


def test_what_is_not_proven_is_not_kept(run):
    """A promise counts as kept when its own proof and the certified optimum both say so."""
    rows = {"table2": run.table2(), "table3": run.table3()}
    for proven, verdict in ((0.5, "holds."), (1.5, "does not hold.")):
        for row in rows["table3"]:
            if row["method"] == "mom-dsvm":
                row |= {"proven_percent": proven, "worst_gap_percent": 0.4}
        (line,) = [line for line in discussion(rows).splitlines() if "MoM-DSVM ends within the 1 %" in line]
        assert verdict in line


def test_the_third_table_states_promise_and_proof(run):
    """Of the worst node in the worst trial; others promise nothing."""
    rows, results = {row["method"]: row for row in run.table3()}, run.results("adult", "mom-dsvm")
    admm = rows["mom-dsvm"]
    assert admm["promise_percent"] == 1.0
    assert admm["proven_percent"] == 100 * max(result["gap"] for result in results)
    assert admm["worst_gap_percent"] >= admm["gap_percent"]
    assert rows["gadget"]["promise_percent"] is rows["gadget"]["proven_percent"] is None


def test_the_speedup_is_distributed_over_centralised_time(run):
    """Appendix B: "Time taken by the distributed algorithm ... / time taken by the centralized algorithm"."""
    mine, central = run.table4()
    assert mine["speedup"] == pytest.approx(mine["total_seconds"] / central["total_seconds"])
    assert mine["total_seconds"] == pytest.approx(mine["load_seconds"] + mine["seconds_mean"])


def test_pegasos_is_also_given_as_many_examples(run):
    rows = {row["method"]: row for row in run.table2()}
    assert rows["pegasos (as many examples)"]["iterations_mean"] == 4 * rows["pegasos"]["iterations_mean"]


def test_one_part_leaves_the_page_of_the_whole_alone(run, tmp_path):
    (tmp_path / "reproduction.html").write_text("the whole")
    made = everything(run, ("table1",))
    assert made["html"].name == "table1.html"
    assert (tmp_path / "reproduction.html").read_text() == "the whole"


@pytest.mark.parametrize("part", ["table2", "table3"])
def test_a_missing_solver_is_said_before_the_work(part, monkeypatch, tmp_path):
    monkeypatch.setattr("gadget_svm.cli.reproduce.find_spec", lambda _: None)
    result = CliRunner().invoke(app, ["reproduce", part, "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    assert "gadget-svm[paper]" in result.output
    assert not (tmp_path / "out").exists()


def test_a_folder_that_is_not_there_is_named(tmp_path):
    result = CliRunner().invoke(
        app, ["reproduce", "table1", "--data", str(tmp_path / "nosuch"), "--out", str(tmp_path)]
    )
    assert result.exit_code == 2
    assert "nosuch" in result.output


@pytest.mark.parametrize("named", [False, True])
def test_a_folder_that_is_named_is_the_only_one(tmp_path, monkeypatch, named):
    """Without --data any folder known will do; with it, a data set that lies elsewhere is left out, and it is said."""
    mine, other = tmp_path / "mine", tmp_path / "other"
    for folder in (mine, other):
        folder.mkdir()
    for part in ("a9a", "a9a.t"):
        (other / part).write_text("+1 1:1\n-1 2:1\n" * 600)
    monkeypatch.setenv("GADGET_DATA", str(other))
    monkeypatch.chdir(mine)
    run = Reproduction(tmp_path, mine if named else None)
    assert ("adult" in run.sets) is not named
    assert ("adult" in run.missing and str(other) in run.missing["adult"]) is named


def test_the_command_writes_a_table(tmp_path, monkeypatch, cancer):
    monkeypatch.setattr(Reproduction, "sets", {"adult": cancer})
    result = CliRunner().invoke(app, ["reproduce", "table1", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert "569" not in (tmp_path / "table1.csv").read_text().splitlines()[0]
    assert (tmp_path / "table1.csv").read_text().splitlines()[1].startswith("adult,426,143,30,")


def test_an_unknown_part_names_the_nearest():
    result = CliRunner().invoke(app, ["reproduce", "tabel2"])
    assert result.exit_code == 2
    assert "table2" in result.output
