"""A peer and its parts: rows, terms, the learner, what survives, what is exported and shown."""

import asyncio
import json
import logging
import shutil
import subprocess
import sys
import threading
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
from gadget_svm.estimator.model_file import load_model
from gadget_svm.kernels.gossip import EPOCH_SHIFT
from gadget_svm.peers import checkpoint, running, vault
from gadget_svm.peers.calls import PeerError
from gadget_svm.peers.charter import Charter, disagreements, names_hash
from gadget_svm.peers.config import ConfigError
from gadget_svm.peers.envelope import decode_status_reply, encode_notice
from gadget_svm.peers.export import as_model, export
from gadget_svm.peers.learner import Learner, Parcel
from gadget_svm.peers.legacies import Legacy
from gadget_svm.peers.membership import Superseded
from gadget_svm.peers.messages import Kept, Notice
from gadget_svm.peers.overlay import node_id
from gadget_svm.peers.peer import Peer
from gadget_svm.peers.post import Contact
from gadget_svm.peers.scale import Scale
from gadget_svm.peers.scaling import Scaling
from gadget_svm.peers.site import LEAST_ROWS, SiteError, load_site
from gadget_svm.peers.turns import PATIENCE
from support.peer_kit import Caller, goes_on, letter, listening, living, refused, rows, until
from support.peer_sites import SITES, excess

TERMS = Charter("test", "pdmm", 0.01, 12, "none", (-1.0, 1.0), True, "none")


def learner(terms=TERMS, seed=0, node=3, neighbours=(1, 9), n=40):
    X, y = rows(n, terms.features, seed)
    label = (y > 0).astype(np.int32) if terms.outputs == 1 else np.arange(n, dtype=np.int32) % terms.outputs
    found = Learner(X, label, terms, node, seed=seed)
    found.set_neighbours(list(neighbours))
    return found


# Terms


def test_terms_travel_as_text_and_come_back_the_same():
    terms = replace(TERMS, classes=("cat", "dog", 3.0), names=names_hash(("age", "size")))
    assert Charter.parse(terms.text()) == terms
    assert Charter.parse(terms.text()).digest == terms.digest
    assert (terms.outputs, terms.width, terms.dimension) == (3, 13, 39)


@pytest.mark.parametrize(
    "change",
    [
        {"run": "b"}, {"algorithm": "gadget"}, {"lam": 0.1}, {"features": 13}, {"names": "abc"},
        {"classes": (1.0, -1.0)}, {"intercept": False}, {"scaling": "max-abs"},
    ],
)  # fmt: skip
def test_every_term_counts_and_is_named_with_both_sides(change):
    other = replace(TERMS, **change)
    assert other.digest != TERMS.digest
    (sentence,) = disagreements(TERMS, other, "site-a", "site-b")
    assert sentence.startswith("site-a has ")
    assert ", site-b has " in sentence
    assert not disagreements(TERMS, TERMS, "a", "b")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("run", 7), ("run", "x" * 300), ("lam", "0.1"), ("lam", True), ("lam", None), ("features", 0),
        ("features", 2.5), ("features", 2**40), ("classes", [1]), ("classes", "ab"), ("classes", [[1], [2]]),
        ("names", None), ("extra", 1),
    ],
)  # fmt: skip
def test_terms_of_another_kind_are_no_terms(key, value):
    with pytest.raises(ValueError, match="terms"):
        Charter.parse(json.dumps({**json.loads(TERMS.text()), key: value}))


def test_the_names_of_features_count_in_their_order():
    assert names_hash(("a", "b")) != names_hash(("b", "a")) != names_hash(None)


# Rows


def test_a_site_of_fewer_than_twenty_rows_does_not_start(town):
    config = town.config("a", rows(LEAST_ROWS - 1))
    with pytest.raises(SiteError, match=r"has 19 rows: .* at least 20"):
        Peer(config)
    assert Peer(town.config("a", rows(LEAST_ROWS))).site.X.shape[0] == 20


def test_a_site_of_one_class_has_to_name_the_others(town):
    X, _ = rows()
    config = town.config("a", (X, np.ones(40)))
    with pytest.raises(SiteError, match=r"only the label 1\.0: .*classes = "):
        Peer(config)
    peer = town.peer("a", (X, np.ones(40)), classes=[-1, 1])
    assert peer.site.classes == (-1.0, 1.0)
    assert (peer.site.label == 1).all()


def test_a_label_outside_the_classes_is_named(town):
    with pytest.raises(SiteError, match=r"the label 1\.0, which is not among"):
        town.peer("a", classes=[-1, 0])


def test_rows_of_the_same_content_have_one_fingerprint_and_others_another(town):
    first = load_site(town.config("a", rows(seed=1)).data.train, features=12)
    same = load_site(town.config("b", rows(seed=1)).data.train, features=12)
    other = load_site(town.config("c", rows(seed=2)).data.train, features=12)
    flipped = replace(first, label=1 - first.label)
    assert first.fingerprint() == same.fingerprint()
    assert len({found.fingerprint() for found in (first, other, flipped)}) == 3


# The learner


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_a_restored_learner_goes_on_bit_for_bit(algorithm):
    terms = replace(TERMS, algorithm=algorithm)

    def tick(each, k):
        note = 1.0 if algorithm == "pdmm" else None
        seen = each.solve()
        vector = np.linspace(0, 0.1, terms.dimension) * k
        each.absorb([Parcel(1, k, vector, 1.0 + 0.1 * k, note)])
        return seen

    first = learner(terms)
    for k in range(7):
        tick(first, k)
    arrays, about = first.state()
    arrays, about = {name: np.array(value) for name, value in arrays.items()}, json.loads(json.dumps(about))
    second = learner(terms, neighbours=())
    second.restore(arrays, about)
    assert second.neighbours == first.neighbours
    for k in range(7, 14):
        for mine, theirs in zip(tick(first, k), tick(second, k), strict=True):
            assert mine[:2] == theirs[:2]
            np.testing.assert_array_equal(mine.vector, theirs.vector)
    np.testing.assert_array_equal(first.model(), second.model())
    assert first.t == second.t == 14


def test_a_checkpoint_of_another_shape_is_not_restored():
    arrays, about = learner(replace(TERMS, features=13)).state()
    with pytest.raises(ValueError, match="shape"):
        learner().restore(arrays, about)


def test_halves_of_a_tick_come_in_turns():
    found = learner()
    with pytest.raises(RuntimeError, match="absorb follows solve"):
        found.absorb([])
    found.solve()
    for act in (found.solve, found.state, lambda: found.set_neighbours([1])):
        with pytest.raises(RuntimeError, match="middle of a tick"):
            act()


@pytest.mark.parametrize("classes", [(-1.0, 1.0), ("a", "b", "c")])
@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_measures_are_the_formulas(algorithm, classes):
    found = learner(replace(TERMS, algorithm=algorithm, classes=classes), neighbours=())
    for _ in range(5):
        found.solve()
        found.absorb([])
    measured, w = found.measure(), found.model()
    X = found.X.toarray()
    outputs = [1] if len(classes) == 2 else [0, 1, 2]
    Y = np.array([np.where(found.label == c, 1.0, -1.0) for c in outputs])
    margin = Y * (w @ X.T)
    hinge = np.maximum(0.0, 1.0 - margin)
    assert measured.loss == pytest.approx(hinge.sum())
    assert measured.objective == pytest.approx(0.005 * (w**2).sum() + hinge.sum() / 40)
    assert measured.norm == pytest.approx(np.linalg.norm(w))
    guess = (w @ X.T)[0] > 0 if len(classes) == 2 else (w @ X.T).argmax(axis=0)
    assert measured.accuracy == (guess == found.label).mean()
    if algorithm == "gadget":
        assert measured.slack == -1.0
        return
    # Alone, w = sum alpha y x / (n lam): slack is n times the duality gap.
    alpha = found.duals
    np.testing.assert_allclose(w, (alpha * Y) @ X / (40 * 0.01), atol=1e-9)
    dual = alpha.sum() / 40 - 0.005 * (w**2).sum()
    assert measured.slack / 40 == pytest.approx(measured.objective - dual, abs=1e-9)


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_a_glimpse_is_the_neighbours_weights(algorithm):
    terms = replace(TERMS, algorithm=algorithm)
    low, high = (learner(terms, seed=i, node=i, neighbours=(1 - i,)) for i in range(2))
    before: Parcel | None = None
    sent = np.zeros(terms.dimension)
    for _ in range(60):
        (to_high,), (to_low,) = low.solve(), high.solve()
        w = np.array(high.block.flat[0])
        seen = low.glimpse(to_low._replace(other=1), before, sent)
        before, sent = to_low._replace(other=1), to_high.vector.copy()
        low.absorb([to_low._replace(other=1, vector=to_low.vector.copy())])
        high.absorb([to_high._replace(other=0, vector=to_high.vector.copy())])
    assert seen is not None
    assert np.linalg.norm(seen - w) < 0.05 * np.linalg.norm(w)


# What survives


def lived(peer, ticks=5):
    async def main():
        async with living(peer):
            await goes_on(peer, ticks)

    asyncio.run(main())
    return peer


def test_gadget_waits_for_mail_if_there_are_neighbours_and_not_for_long(town):
    peer = town.peer("a", algorithm="gadget")
    now, peer.set_neighbours = peer.study.ticked, False
    assert not peer.study._waits(now)  # nobody to wait for
    peer.contacts["b"] = None
    assert not peer.study._waits(now)  # it may be written to
    peer.mailbox.turns.wrote("b", now)
    assert peer.study._waits(now)
    assert not peer.study._waits(now + PATIENCE * peer.config.pace.heartbeat)
    peer.received(letter("b", peer, seq=0), "b")
    peer.set_neighbours, peer._meetings = False, peer.members.meetings
    assert not peer.study._waits(now)
    peer.mailbox.turns.wrote("b", now)
    assert peer.study._waits(now)
    peer.set_neighbours = True  # neighbours to be found
    assert not peer.study._waits(now)
    slow = town.peer("b", algorithm="pdmm")
    slow.set_neighbours, slow.contacts["a"] = False, None
    slow.mailbox.turns.wrote("a", now)
    assert not slow.study._waits(now)  # PDMM has a use for every tick


def test_a_gadget_peer_ticks_as_often_as_letters_come(town):
    async def main():
        a, b = town.peers("ab", algorithm="gadget", tick=0.01, heartbeat=1.9)
        async with living(a, b):
            await until(lambda: a.contacts and b.contacts)
            before = a.ticks
            await until(lambda: a.ticks > before + 40)
        for peer, other in ((a, b), (b, a)):
            letters = peer.mailbox.heard[other.name].letters
            assert peer.ticks <= letters + 20  # and some at first, before there was anybody

    asyncio.run(main())


def test_a_slow_gadget_peer_does_not_slow_the_others(town):
    async def main():
        a, b = town.peers("ab", algorithm="gadget", tick=0.01, heartbeat=1.9)
        slow = town.peer("c", algorithm="gadget", tick=1.0, heartbeat=1.9, join=[a.address])
        async with living(a, b, slow):
            await until(lambda: all(len(peer.contacts) == 2 for peer in (a, b, slow)) and slow.ticks > 2)
            before = [peer.ticks for peer in (a, b, slow)]
            await until(lambda: min(a.ticks - before[0], b.ticks - before[1]) > 200)
            assert slow.ticks - before[2] < 50
            heard = slow.mailbox.heard
            assert heard["a"].letters + heard["b"].letters < 100  # the others do not pile their mass up there

    asyncio.run(main())


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
@pytest.mark.parametrize("anew", [False, True])
def test_one_who_goes_on_hears_a_neighbour_that_began_anew_while_it_was_down(town, algorithm, anew):
    """The number of the last letter it heard is of the neighbour's former life, and would hide all of the new one."""
    first = town.peer("a", algorithm=algorithm)
    first.go_on_from(None)
    first.learner.set_neighbours([node_id("b")])
    first.received(letter("b", first, incarnation=1000, seq=90_000), "b")
    first.learner.solve()
    first.learner.absorb(list(first.mailbox.waiting.values()))
    asyncio.run(first.keeper.save())

    second = Peer(first.config)
    second.go_on_from(vault.recall(first.config.peer.state, second.charter, second.fingerprint))
    assert last_heard(second.learner) == 90_000
    asyncio.run(second.keeper.save())  # before anybody was heard
    second = Peer(first.config)
    second.go_on_from(vault.recall(first.config.peer.state, second.charter, second.fingerprint))
    second.received(letter("b", second, incarnation=1000 + anew, seq=3), "b")
    assert second.mailbox.renewed == ({"b"} if anew else set())
    for name in second.mailbox.renewed:
        second.learner.reset_edge(node_id(name))
    second.learner.solve()
    second.learner.absorb(list(second.mailbox.waiting.values()))
    assert last_heard(second.learner) == (3 if anew and algorithm == "pdmm" else 90_000 if not anew else -1)


def last_heard(learner):
    """The number of the newest letter on its one edge, without the epoch; -1: of this epoch there is none."""
    [seen] = learner.block.edge["last_seq" if "dual" in learner.block.edge else "seen_seq"]
    epoch = int(learner.block.edge["epoch"][0]) << EPOCH_SHIFT
    return int(seen) - epoch


def test_a_restarted_peer_goes_on_with_a_higher_incarnation(town):
    config = town.config("a")
    first = lived(Peer(config))
    second = Peer(config)
    second.go_on_from(vault.recall(config.peer.state, second.charter, second.fingerprint))
    assert second.ticks == first.ticks > 0
    assert second.members.me.incarnation > first.members.me.incarnation
    np.testing.assert_array_equal(second.learner.model(), first.learner.model())
    assert second.export_saved() == config.peer.model


def test_a_state_of_other_rows_or_terms_is_refused_and_fresh_is_the_way_out(town, monkeypatch):
    config = town.config("a")
    lived(Peer(config))
    other_rows = town.config("a", rows(seed=5), listen=config.peer.listen, address=config.peer.address)
    with pytest.raises(vault.VaultError, match=r"rows have changed .*--fresh"):
        asyncio.run(Peer(other_rows).live())
    other_lam = town.config("a", lam=0.5, stop_after_ticks=3)
    with pytest.raises(vault.VaultError, match=r"lam = 0\.5, the checkpoint has lam = 0\.01.*--fresh"):
        asyncio.run(Peer(other_lam).live())
    monkeypatch.setattr(running, "setup_logging", lambda *_: None)
    with pytest.raises(ConfigError, match="--fresh"):
        running.run_peer(other_lam)
    assert running.run_peer(other_lam, fresh=True) == 0
    assert list(config.peer.state.glob("*.former-*"))  # set aside, not gone
    assert running.run_peer(other_lam) == 0


def test_a_damaged_checkpoint_falls_back_to_the_one_before_with_a_warning(town, caplog):
    config = town.config("a", checkpoint=0.2)
    first = lived(Peer(config), 30)
    newest = max((config.peer.state / slot for slot in checkpoint.SLOTS), key=lambda path: path.stat().st_mtime_ns)
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 1
    newest.write_bytes(data)
    second = Peer(config)
    with caplog.at_level(logging.WARNING):
        lived(second)
    assert any("checksum" in record.getMessage() for record in caplog.records)
    assert newest.with_name(newest.name + ".damaged").exists()
    assert second.members.me.incarnation > first.members.me.incarnation
    assert second.ticks > 0


def test_a_state_folder_in_use_by_another_process_is_left_alone(town):
    config = town.config("a")
    config.peer.state.mkdir()
    hold = (
        "import fcntl, os, sys; f = open(sys.argv[1], 'w'); fcntl.flock(f, fcntl.LOCK_EX); "
        "print(os.getpid(), file=f, flush=True); print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(config.peer.state / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(checkpoint.CheckpointError, match=f"in use by process {other.pid}"):
            asyncio.run(Peer(config).live())
        other.stdin.close()
    lived(Peer(config))


def test_a_folder_without_a_model_has_nothing_to_export(town):
    with pytest.raises(PeerError, match="no model yet"):
        town.peer("a").export_saved()


def test_weights_that_are_no_numbers_are_taken_back(town):
    """Whatever brought them about: back to the last that were saved."""

    async def main():
        peer = town.peer("a", checkpoint=0.1)
        async with living(peer):
            await until(lambda: peer.metrics.checkpoints._value.get() >= 2)
            async with peer.study.between_ticks:
                peer.learner.block.w[...] = np.nan
            await goes_on(peer, 5)
        assert np.isfinite(load_model(peer.config.peer.model).coef_).all()

    asyncio.run(main())


async def spoil(peer):
    """Weights that are no numbers, between two ticks."""
    async with peer.study.between_ticks:
        peer.learner.block.w[...] = np.nan


def files_of(peer):
    """What is written, byte by byte."""
    places = [peer.config.peer.model, *(peer.config.peer.state / slot for slot in checkpoint.SLOTS)]
    return {path: path.read_bytes() for path in places if path.exists()}


def test_weights_that_are_no_numbers_begin_anew_if_what_was_saved_is_damaged(town, caplog):
    """To end would take the rows from the others; and what was saved is kept for whoever looks into it."""

    async def main():
        peer = town.peer("a")
        async with living(peer):
            await peer.keeper.save()
            await peer.keeper.save()
            for slot in checkpoint.SLOTS:
                (peer.config.peer.state / slot).write_bytes(b"garbage" * 50)
            await goes_on(peer, 20)
            before = peer.ticks
            await spoil(peer)
            await until(lambda: peer.ticks < before)
            await goes_on(peer, 5)
            assert set(peer.trouble) == {"weights"}
        assert {path.read_bytes() for path in peer.config.peer.state.glob("*.former-*")} == {b"garbage" * 50}
        assert np.isfinite(load_model(peer.config.peer.model).coef_).all()
        again = Peer(peer.config)
        again.go_on_from(vault.recall(peer.config.peer.state, again.charter, again.fingerprint))
        assert again.ticks == peer.ticks
        assert again.learner.finite()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    assert any("learning begins anew" in record.getMessage() for record in caplog.records)


def test_what_letters_are_answered_from_changes_in_the_loop_alone(town, monkeypatch):
    """Also when weights are taken back: letters come in meanwhile."""
    threads = []

    async def main():
        peer = town.peer("a")
        async with living(peer):
            former = peer.learner
            for part in (peer.mailbox, peer.legacies):
                monkeypatch.setattr(part, "restart", noted(part.restart))
            await spoil(peer)
            await until(lambda: peer.learner is not former)
            await goes_on(peer, 2)

    def noted(act):
        def restart(*args):
            threads.append(threading.current_thread())
            act(*args)

        return restart

    asyncio.run(main())
    assert threads == [threading.main_thread()] * 2


def test_who_cannot_be_helped_leaves_without_a_word_and_writes_nothing(town, monkeypatch):
    async def main():
        peer = town.peer("a")
        live = asyncio.create_task(peer.live())
        await until(lambda: listening(peer))
        await peer.keeper.save()
        await peer.keeper.export()
        before = files_of(peer)
        assert len(before) == 3
        monkeypatch.setattr(peer.study, "_successor", lambda: 1 / 0)
        await spoil(peer)
        with pytest.raises(ZeroDivisionError):
            await live
        assert files_of(peer) == before
        assert "not finite" in peer.trouble["checkpoint"]
        assert "not finite" in peer.trouble["model"]

    asyncio.run(main())


@pytest.mark.parametrize("algorithm", ["pdmm", "gadget"])
def test_a_state_that_is_not_finite_is_not_gone_on_from(town, algorithm):
    """As one of a version that saved whatever there was."""
    peer = lived(town.peer("a", algorithm=algorithm))
    found = checkpoint.load(peer.config.peer.state)
    spoilt = {**found.arrays, "w": np.full_like(found.arrays["w"], np.inf)}
    newest, before = checkpoint.save(peer.config.peer.state, spoilt, found.about), files_of(peer)
    complaint = rf"{newest} is not finite \(w\): move that file away .*--fresh"
    with pytest.raises(vault.VaultError, match=complaint):
        asyncio.run(asyncio.wait_for(Peer(peer.config).live(), 30.0))  # or it would go on for ever
    with pytest.raises(vault.VaultError, match=complaint):
        Peer(peer.config).export_saved()
    assert files_of(peer) == before
    newest.unlink()
    assert lived(Peer(peer.config)).ticks > peer.ticks


def test_a_model_that_is_not_finite_is_not_written(town):
    peer = lived(town.peer("a"))
    before = files_of(peer)
    with pytest.raises(PeerError, match="not finite"):
        peer.keeper.write_model(np.full((1, 13), np.nan), Scale.none(12), 3)
    assert files_of(peer) == before


def mass_of(*peers):
    """What gossips of rows, in the peers and between them; 0 while they are of different epochs."""
    blocks = [peer.learner.block for peer in peers]
    if len({int(block.edge["epoch"][0]) for block in blocks}) > 1:
        return 0.0
    under_way = sum(block.edge["sigma_phi"].sum() - block.edge["seen_phi"].sum() for block in blocks)
    return float(sum(block.phi[0] for block in blocks) + under_way)


@pytest.mark.parametrize("saved", [False, True])
def test_gadget_peers_begin_a_new_epoch_with_one_whose_weights_were_taken_back(town, saved):
    async def main():
        a, b = town.peers("ab", algorithm="gadget")
        async with living(a, b):
            await until(lambda: a.contacts and b.contacts)
            await goes_on(a, 50)
            await a.keeper.save()
            if not saved:
                shutil.rmtree(a.config.peer.state)
            before, former = int(a.learner.block.edge["epoch"][0]), a.learner
            await spoil(a)
            await until(lambda: a.learner is not former and "sigma" in a.learner.block.edge)
            await until(lambda: int(b.learner.block.edge["epoch"][0]) > before)
            await goes_on(a, 50)
            async with a.study.between_ticks, b.study.between_ticks:
                assert mass_of(a, b) == pytest.approx(80.0)

    asyncio.run(main())


def test_who_loses_its_last_neighbour_shows_no_model_before_it_has_one(town):
    """Its alphas are those of the model of both."""

    async def main():
        a, b = town.peers("ab", [SITES["a"], SITES["b"]])
        async with living(a):
            async with living(b):
                await until(lambda: a.contacts and b.contacts)
                await until(lambda: excess("ab", a.learner.model()[0]) < 0.03 < excess("a", a.learner.model()[0]))
                b._withdraws = True
            await until(lambda: not a.contacts)
            async with a.study.between_ticks:
                assert not a.learner.neighbours
                assert excess("a", a.learner.model()[0]) < 0.03

    asyncio.run(main())


# Ends


def test_one_whose_name_another_has_says_so_in_a_sentence(town, monkeypatch, caplog):
    def superseded():
        raise Superseded("another process runs as 'a'")

    async def main():
        peer = town.peer("a")
        monkeypatch.setattr(peer.members.__class__, "tick", lambda _: superseded())
        with pytest.raises(Superseded):
            await peer.live()

    with caplog.at_level(logging.ERROR):
        asyncio.run(main())
    [record] = [record for record in caplog.records if record.getMessage() == "cannot go on"]
    assert not record.exc_info


def test_who_leaves_calls_nobody_any_more(town, monkeypatch):
    ended = []

    async def main():
        peer = town.peer("a")

        async def look_around():
            try:
                await asyncio.sleep(600)
            finally:
                ended.append(peer.stopping.is_set())

        monkeypatch.setattr(peer, "_look_around", look_around)
        async with living(peer):
            await goes_on(peer, 2)
        assert ended == [True]

    asyncio.run(main())


# The vault


def test_the_vault_keeps_the_scale_that_was_settled(town):
    shards = [rows(seed=i)[0] for i in range(2)]
    a, b = (Scaling("max-abs", 2, name, X) for name, X in zip("ab", shards, strict=True))
    a.hear(b.message())
    terms = replace(TERMS, scaling="max-abs")
    arrays, about = vault.pack(terms, "rows", 7, {"b": "127.0.0.1:1"}, a, None)
    checkpoint.save(town.folder / "s", arrays, about)
    memory = vault.recall(town.folder / "s", terms, "rows")
    assert (memory.incarnation, memory.addresses, memory.learner) == (7, {"b": "127.0.0.1:1"}, None)
    again = Scaling("max-abs", 2, "a", shards[0])
    assert again.hear(memory.statistics)
    assert again.digest == a.digest
    with pytest.raises(vault.VaultError, match="rows have changed"):
        vault.recall(town.folder / "s", terms, "others")


def test_the_vault_keeps_what_those_who_left_have_taught(town):
    kept = {"b": Legacy(0xABC, 5, (Kept("c", 3), Kept("d", 4))), "e": Legacy(0, 6)}
    scaling = Scaling("none", 0, "a", rows()[0])
    packed = vault.pack(TERMS, "rows", 7, {}, scaling, None, kept=kept, numbers={"b": 5, "z": 1})
    checkpoint.save(town.folder / "s", *packed)
    memory = vault.recall(town.folder / "s", TERMS, "rows")
    assert memory.kept == kept
    assert memory.numbers == {"b": 5, "z": 1}


def test_a_state_in_which_nothing_was_learned_is_of_no_run(town):
    """One that was refused for its terms corrects them and starts again, with a higher incarnation."""
    scaling = Scaling("none", 1, "a", rows()[0])
    checkpoint.save(town.folder / "s", *vault.pack(TERMS, "rows", 7, {"b": "127.0.0.1:1"}, scaling, None))
    memory = vault.recall(town.folder / "s", replace(TERMS, lam=0.5), "others")
    assert (memory.incarnation, memory.addresses, memory.learner) == (7, {}, None)


def test_a_checkpoint_that_is_none_of_ours_is_refused_with_a_sentence(town):
    checkpoint.save(town.folder / "s", {}, {"hello": "world"})
    with pytest.raises(vault.VaultError, match=r"another version .*--fresh"):
        vault.recall(town.folder / "s", TERMS, "rows")


# The model file


@pytest.mark.parametrize(
    "classes", [(-1.0, 1.0), (1.0, -1.0), ("no", "yes"), ("yes", "no"), (3.0, 1.0, 2.0), ("b", "c", "a")]
)
@pytest.mark.parametrize("intercept", [True, False])
def test_the_model_file_predicts_rows_as_they_are(tmp_path, classes, intercept):
    terms = replace(TERMS, classes=classes, intercept=intercept, features=4)
    rng = np.random.default_rng(1)
    weights, X = rng.normal(size=(terms.outputs, terms.width)), rng.normal(size=(50, 4))
    scale = Scale(rng.uniform(0.1, 9, 4), rng.normal(size=4) if intercept else np.zeros(4))
    path = export(tmp_path / "m.safetensors", weights, scale, terms, name="site-a", ticks=12)
    model = load_model(path)
    scores = (X - scale.shift) / scale.divisor @ weights[:, :4].T + (weights[:, 4] if intercept else 0.0)
    number = (scores[:, 0] > 0).astype(int) if terms.outputs == 1 else scores.argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), np.array(classes)[number])
    assert list(model.classes_) == sorted(classes)


def test_the_model_knows_its_features_names_and_site():
    terms = replace(TERMS, features=2)
    model = as_model(np.ones((1, 3)), Scale.none(2), terms, name="site-a", ticks=12, columns=("age", "size"))
    assert list(model.feature_names_in_) == ["age", "size"]
    assert (model.sites_, model.n_iter_) == (["site-a"], 12)


# What is shown, and a life among others


def test_peers_come_to_agree_and_say_how_they_are(town):
    async def main():
        a, b, c = town.peers("abc", suspect=60.0, dead=60.0)
        async with living(a, b, c), Caller(a, town.identity("guest").channel_credentials()) as call:
            await until(lambda: all(len(p.contacts) == 2 and p.study.measures for p in (a, b, c)))
            await until(lambda: json.loads(a.status())["network_rows"] == 120.0)  # the others' numbers ride on views
            await until(lambda: (json.loads(a.status())["gap_estimate"] or 1.0) < 0.01)
            found = json.loads(decode_status_reply(await call("Status", encode_notice(Notice("guest")))).text)
            assert (found["name"], found["state"], found["rows"]) == ("a", "learning", 40)
            assert found["network_rows"] == 120.0
            assert found["members"]["alive"] == 3
            assert {each["name"] for each in found["neighbours"]} == {"b", "c"}
            assert found["messages_sent"] > 0 < found["messages_received"]
            assert 0.0 <= found["disagreement"] < 0.5
            assert found["refused"] == refused(a) == {}
            assert found["trouble"] == {}
            well, about = a.healthy()
            assert well
            assert about["learning"]

            def agree():
                models = np.array([peer.learner.model().ravel() for peer in (a, b, c)])
                return np.abs(models - models.mean(axis=0)).max() < 0.05 * np.abs(models).max()

            await until(agree)

    asyncio.run(main())


def test_one_who_leaves_is_gone_at_once_and_the_others_go_on(town):
    async def main():
        a, b, c = town.peers("abc", suspect=60.0, dead=60.0)
        async with living(a, b):
            async with living(c):
                await until(lambda: len(c.contacts) == 2 and all(each.sent for each in c.contacts.values()))
                await until(lambda: "c" in a.contacts and "c" in b.contacts)
            await until(lambda: "c" not in a.contacts and "c" not in b.contacts)  # long before suspicion
            assert json.loads(a.status())["members"]["left"] == 1
            await goes_on(a)

    asyncio.run(main())


def test_one_who_is_told_to_stop_while_hanging_up_still_stops(town):
    """Contact.close waits for what it cancels; it must not take its own cancellation for theirs."""

    async def main():
        peer = town.peer("a")
        contact = Contact(peer, "b", "127.0.0.1:9", False)

        async def dawdle():
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.2)  # it takes a while to end

        contact._at_work = asyncio.create_task(dawdle())
        await asyncio.sleep(0)
        closing = asyncio.create_task(contact.close())
        await asyncio.sleep(0.05)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing

    asyncio.run(main())


def test_a_peer_waits_for_statistics_and_says_so(town):
    async def main():
        peer = town.peer("a", scaling="max-abs", sites=2)
        async with living(peer):
            found = json.loads(peer.status())
            assert found["state"].startswith("waiting")
            assert peer.ticks == 0
            assert peer.healthy()[0]
        assert not peer.config.peer.model.exists()

    asyncio.run(main())
