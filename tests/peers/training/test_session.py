"""Training sessions: from statistics to a common model, through restarts, failures and changes of edges."""

import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm.algorithms.certificate import bound_of
from gadget_svm.peers.membership import overlay
from gadget_svm.peers.training import session as sessions_module
from support.peer_sites import LAM, SITES, apart, excess
from support.training_kit import SessionNet, as_push, rows, session, site, step


def net(names, algorithm="pdmm", **fields):
    return SessionNet([session(name, None, algorithm, **fields) for name in names])


def worst(found, names):
    return max(excess(names, one.model()[0]) for one in found.sessions.values())


@pytest.mark.parametrize(("algorithm", "most"), [("pdmm", 1e-4), ("gadget", 0.03)])
@pytest.mark.parametrize("names", ["a", "ab", "abcd"])
def test_sessions_reach_the_optimum_of_all_rows(algorithm, most, names):
    apart("a", "ab", "abcd")
    found = net(names, algorithm)
    found.run(1000, measure_every=20)
    assert worst(found, names) < most
    for one in found.sessions.values():
        assert one.ticks == 999 or (algorithm == "gadget" and one.ticks > 900)  # the first step built the learner
        assert one.edge_names == set(names) - {one.name}
        assert one.measures.norm > 0.5
        assert len(one.neighbour_models()) == len(one.edge_names)
    shares = [one.gap_share() for one in found.sessions.values()]
    if algorithm == "pdmm":
        objective = sum(one.measures.loss for one in found.sessions.values()) / (60 * len(names))
        assert 0 <= sum(shares) / (60 * len(names)) < 0.01 * objective
    else:
        assert shares == [-1.0] * len(names)


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_messages_may_be_lost(algorithm):
    found, rng = net("abc", algorithm), np.random.default_rng(0)
    for one in found.sessions.values():

        def lossy(name, push, receive=one.receive):
            return rng.random() > 0.3 and receive(name, push)

        one.receive = lossy
    found.run(2000)
    assert worst(found, "abc") < (1e-4 if algorithm == "pdmm" else 0.03)


def test_a_scale_is_settled_first():
    found = net("abc", scaling="deviation", scaling_sites=3)
    a = found.sessions["a"]
    assert a.waiting == "waiting for the statistics of 3 sites, 1 known"
    assert a.scale is None
    assert a.scale_digest == b""
    assert a.next_step((), True) is None
    assert a.snapshot()[0] == {}
    found.share_statistics()
    digests = {one.scale_digest for one in found.sessions.values()}
    assert len(digests) == 1
    assert len(a.scale_digest) == 32
    assert a.waiting == ""
    found.run(600)
    models = np.array([one.model()[0] for one in found.sessions.values()])
    assert np.abs(models - models[0]).max() < 1e-3 * np.abs(models).max()
    pooled = np.vstack([SITES[name][0].toarray() for name in "abc"])
    np.testing.assert_allclose(a.scale.divisor, pooled.std(axis=0))


def test_another_scale_begins_learning_anew():
    """Two pairs settle apart, and meet."""
    sessions = [session(name, scaling="max-abs", scaling_sites=2) for name in "abcd"]
    left, right = SessionNet(sessions[:2]), SessionNet(sessions[2:])
    for part in (left, right):
        part.share_statistics()
        part.run(50)
    digests = [sessions[0].scale_digest, sessions[2].scale_digest]
    whole = SessionNet(sessions)
    running = [one.next_step(one.edge_names, False) for one in sessions]
    results = [run() for run in running]
    whole.share_statistics()
    for one, result in zip(sessions, results, strict=True):
        sent = one.finish(result)  # on the old scale at two of them
        assert one.ready or not sent
    assert {one.scale_digest for one in sessions} == {min(digests)}
    assert sorted(one.ticks for one in sessions) == [0, 0, 50, 50]
    whole.run(800)
    models = np.array([one.model()[0] for one in sessions])
    assert np.abs(models - models[0]).max() < 1e-3 * np.abs(models).max()


def test_pushes_are_for_one_scale_and_from_neighbours():
    found = net("ab")
    found.run(5)
    a, b = found.sessions.values()
    [sent] = step(a, ["b"])
    push = as_push(a, sent)
    assert not b.receive("a", replace(push, scale=b"x" * 16))
    assert not b.receive("c", push)
    assert b.receive("a", push)
    assert not b.receive("a", push)


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_nothing_is_sent_to_who_is_not_open(algorithm):
    found = net("ab", algorithm)
    found.run(20)
    a = found.sessions["a"]
    assert all(step(a, ()) == () for _ in range(5))
    assert (a.next_step((), False) is None) == (algorithm == "gadget")


def test_gadget_waits_for_credits():
    found = net("ab", "gadget")
    found.run(2)
    a = found.sessions["a"]
    sent = [bool(step(a, ["b"])) for _ in range(20)]
    assert 1 <= sum(sent[:14]) <= 2
    assert sum(sent) == sum(sent[:14]) + 1  # after the timeout
    a.set_edges([])
    a.set_edges(["b"])
    assert a.next_step(["b"], False) is not None


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_edges_come_and_go(algorithm):
    found = net("abc", algorithm)
    found.run(600)
    gone = found.sessions.pop("c")
    found.connect()
    found.run(700)
    assert found.sessions["a"].edge_names == {"b"}
    assert worst(found, "ab") < (1e-3 if algorithm == "pdmm" else 0.03)
    found.sessions["c"] = gone
    found.connect()
    found.run(900)
    assert worst(found, "abc") < (1e-3 if algorithm == "pdmm" else 0.03)


def test_a_node_left_alone_presents_no_model_before_it_has_its_own():
    found = net("abc")
    found.run(500)
    a = found.sessions["a"]
    a.set_edges([])
    presented = []
    for _ in range(400):
        step(a, (), measure=True)
        if a.model() is not None:
            presented.append(excess("a", a.model()[0]))
            assert a.gap_share() >= 0.0
        else:
            assert a.gap_share() == -1.0
    assert 1 < len(presented) < 400
    assert max(presented) < 0.03


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_a_session_continues_from_a_snapshot(algorithm):
    """Of a while ago, so that it counts its messages from an earlier number; neighbours see its incarnation."""
    found = net("abc", algorithm)
    found.run(300)
    arrays, about = found.sessions["b"].snapshot()
    about = json.loads(json.dumps(about))
    found.run(100)
    again = session("b", algorithm=algorithm)
    assert again.restore((arrays, about)) == []
    assert again.ticks == about["learner"]["t"] > 0
    before = excess("abc", found.sessions["b"].model()[0])
    found.sessions["b"], found.incarnations["b"] = again, 2
    found.connect()
    step(again)
    step(again)
    assert excess("abc", again.model()[0]) < 2 * before + 0.03
    found.run(800)
    assert worst(found, "abc") < (1e-4 if algorithm == "pdmm" else 0.03)


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_neighbours_that_restarted_in_the_meantime_are_heard(algorithm):
    found = net("ab", algorithm)
    found.run(200)
    kept = found.sessions["b"].snapshot()
    again = session("b", algorithm=algorithm)
    again.restore(kept)
    found.sessions = {"a": session("a", algorithm=algorithm), "b": again}  # a began anew
    found.incarnations = {"a": 9, "b": 2}
    found.connect()
    found.run(900)
    assert worst(found, "ab") < (1e-3 if algorithm == "pdmm" else 0.03)


def test_a_snapshot_belongs_to_a_study_and_rows():
    found = net("ab")
    found.run(20)
    arrays, about = found.sessions["a"].snapshot()
    with pytest.raises(ValueError, match=r"another study: .*lam.*--fresh"):
        session("a", lam=0.5).restore((arrays, about))
    with pytest.raises(ValueError, match=r"the rows have changed .* put the old file back, or start anew with --fresh"):
        session("a", rows()).restore((arrays, about))
    with pytest.raises(ValueError, match=r"another version"):
        session("a").restore((arrays, {**about, "format": 0}))
    with pytest.raises(ValueError, match=r"damaged .*--fresh"):
        session("a").restore((arrays, {name: value for name, value in about.items() if name != "incarnations"}))
    spoilt = {**arrays, "w": np.full_like(arrays["w"], np.nan)}
    with pytest.raises(ValueError, match=r"not finite \(w\)"):
        session("a").restore((spoilt, about))


def test_a_snapshot_of_a_node_that_never_learned_fits_everywhere():
    """Such as of one that was refused because of its study."""
    arrays, about = session("a").snapshot()
    assert session("a", lam=0.5).restore((arrays, about)) == []
    assert session("a", rows()).restore((arrays, about)) == []


def test_a_snapshot_keeps_the_scale():
    found = net("ab", scaling="deviation", scaling_sites=2)
    found.share_statistics()
    found.run(30)
    kept = found.sessions["a"].snapshot()
    again = session("a", scaling="deviation", scaling_sites=2)
    assert again.restore(kept) == []
    assert again.scale_digest == found.sessions["a"].scale_digest
    np.testing.assert_array_equal(again.scale, found.sessions["a"].scale)
    assert again.ticks == 29
    kept[1]["scale"] = "00"
    again = session("a", scaling="deviation", scaling_sites=2)
    assert again.restore(kept) == ["the feature scaling differs from the snapshot: training restarts from scratch"]
    assert again.ticks == 0


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
@pytest.mark.parametrize("saved", [True, False])
def test_weights_that_are_not_finite_go_back_to_the_last_snapshot(algorithm, saved):
    found = net("abc", algorithm)
    found.run(300)
    a = found.sessions["a"]
    before = a.ticks
    if saved:
        a.snapshot()
    found.run(50)
    last = a._trainer.learner.block.exchanges
    a._trainer.learner.block.w[:] = np.nan
    a._asked_at.clear()
    ticks = a.ticks
    failing = a.next_step(a.edge_names, True)
    with pytest.raises(FloatingPointError, match="the weights are not finite"):
        failing()
    to = f"goes back to tick {before}" if saved else "restarts from scratch"
    assert a.abort("not finite") == f"not finite at tick {ticks + 1}: training {to}"
    assert a.model() is None
    kept = a.snapshot()[1]
    assert kept["learner"]["t"] == before if saved else "learner" not in kept
    step(a)
    assert a.ticks == (before if saved else 0)
    sent = []
    while not sent:
        sent = step(a, a.edge_names)
    assert sent[0][1] & (2**40 - 1) >= last
    found.run(900)
    assert worst(found, "abc") < (1e-3 if algorithm == "pdmm" else 0.03)


def test_a_step_that_raises_is_given_up(monkeypatch):
    found = net("ab")
    found.run(50)
    a = found.sessions["a"]
    run = a.next_step(["b"], False)
    with monkeypatch.context() as patch:
        patch.setattr(type(a._trainer.learner), "absorb", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run()
    assert a.abort("division by zero") == "division by zero at tick 50: training restarts from scratch"
    found.run(600)
    assert worst(found, "ab") < 1e-3


def test_all_sums_together_bound_the_gap():
    found = net("abc")
    found.run(400)
    a = found.sessions["a"]
    model, scale = a.model(), a.scale_digest
    assert a.sums_step(model, b"x" * 16) is None
    assert net("ab", "gadget").sessions["a"].sums_step(model, scale) is None
    total = sum(one.sums_step(model, scale)() for one in found.sessions.values())
    bounds, duals, weight = bound_of(model, total, LAM, 1, 13)
    assert weight == 180.0
    assert excess("abc", model[0]) < bounds[0] / duals[0] < 1e-3


def test_sums_before_the_first_tick_are_a_valid_part_of_a_bound():
    a, model = session("a"), np.zeros((1, 13))
    step(a)
    bounds, duals, _ = bound_of(model, a.sums_step(model, a.scale_digest)(), LAM, 1, 13)
    assert bounds[0] >= 1.0 - 1.0 / (1.0 + excess("a", model[0]))  # the objective of 0 is 1
    assert duals[0] <= 0.0


def test_of_two_names_with_one_number_one_is_left_out(monkeypatch):
    real = overlay.node_id
    monkeypatch.setattr(sessions_module, "node_id", lambda name: real("c") if name in ("b", "c") else real(name))
    a = session("a")
    a.set_edges(["b", "c", "d"])
    assert a.name_clashes == ["c"]
    step(a)
    step(a)
    assert a.edge_names == {"b", "d"}
    a.set_edges(["c", "d"])
    assert a.name_clashes == []


def test_accuracy_of_test_rows_is_measured_on_the_scale():
    X, y = rows(60)
    stretched = sp.csr_matrix(X.multiply(np.geomspace(0.01, 100.0, 12)))
    one = session("a", (stretched, y), scaling="deviation", scaling_sites=1)
    one.site = replace(one.site, X_test=stretched[:30], label_test=one.site.label[:30])
    for _ in range(100):
        step(one, (), measure=True)
    assert one.measures.test_accuracy > 0.9


def test_scaled_rows_are_not_copied_without_need():
    one = site("a")
    assert session("a").scale.apply(one.X) is one.X
