"""Private studies in simulated networks: messages depend on rows by noisy slopes only, ledgers are never low."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("google.protobuf")
pytest.importorskip("dp_accounting")

from gadget_svm.algorithms.private_gradient import PrivateGradientRun
from gadget_svm.peers.events import Export, Report, Save, Saved
from gadget_svm.peers.wire import codec
from gadget_svm.peers.wire.limits import Limits
from gadget_svm.peers.wire.messages import Heartbeat, Hello
from gadget_svm.peers.world import run
from gadget_svm.peers.world import world as world_module
from gadget_svm.peers.world.scenario import load
from gadget_svm.peers.world.shards import Shard, generate
from gadget_svm.peers.world.world import World, node_factory, run_world

SEEDS = 20


@pytest.mark.parametrize("name", ["private", "private-kills"])
def test_all_sites_end_with_one_model_and_ledgers_are_never_low(name):
    for seed in range(SEEDS):
        result = run(name, seed)
        assert result.ok, f"{result.failure}\nrepeat it: {result.command}"


@pytest.mark.parametrize("name", ["chaos", "lossy", "partition", "resets", "slow-peers", "full-disk"])
def test_private_studies_end_with_one_model_whatever_else_fails(name):
    """The scenarios of other studies, with their faults; nothing is known of how good a private model is."""
    scenario = replace(load(name), study=load("private").study, tolerance=np.inf, settle=400.0)
    for seed in range(3):
        result = run(scenario, seed)
        assert result.ok, f"seed {seed}: {result.failure}"


def test_the_kills_cost_rounds_and_no_site_releases_more_than_planned():
    lost = 0
    for seed in range(SEEDS):
        world = World(load("private-kills"), seed, make_node=node_factory())
        assert run_world(world) == ""
        for name in world.roles.names:
            ledger = world.machines[name].disk.restore_ledger()
            released = world.invariants.released[name]
            assert released <= ledger.rounds(world.study.digest.hex()) == world.study.rounds
            lost += released < world.study.rounds
    assert lost > SEEDS / 2


def other_rows(names, plan, seed):
    """Rows of the same sizes that have nothing else in common with those of `generate`."""
    rng = np.random.default_rng(99)
    changed = {}
    for name, shard in generate(names, plan, seed).items():
        X = shard.X.copy()
        X.data = 5.0 * rng.normal(size=X.nnz)
        changed[name] = Shard(X, rng.integers(0, 2, len(shard.label)).astype(np.int32))
    return changed


def history(monkeypatch, scenario, rows, slopes):
    """Return all messages as bytes, and model files, snapshots' descriptions and log lines.

    ``slopes`` is filled with the noisy slopes; if it is not empty, the nodes get those instead of their own.
    """
    seen, replays = [], bool(slopes)
    real = PrivateGradientRun.noisy_slopes

    def noisy_slopes(self, block, learning, noise_multiplier):
        key = block.first, block.exchanges, int(block.steps[0]), bool(learning[0])
        if not replays:
            slopes.setdefault(key, real(self, block, learning, noise_multiplier))
        return slopes[key].copy()

    def noting(study):
        def note(message):
            encode = codec.encode_hello if isinstance(message, Hello) else codec.encode
            seen.append(encode(message, Limits.of(study)))
            if isinstance(message, Heartbeat):
                for line in message.members:
                    assert (line.loss, line.objective, line.slack) in ((0.0, 0.0, -1.0), (0.0, 0.0, 0.0))
            return message

        return note

    with monkeypatch.context() as patches:
        patches.setattr(PrivateGradientRun, "noisy_slopes", noisy_slopes)
        patches.setattr(world_module, "generate", rows)
        world = World(scenario, 5, make_node=node_factory(), transcoder=noting)
        handled = world.invariants.handled

        def observe(machine, event, effects):
            for effect in effects:
                if isinstance(effect, Export):
                    seen.append((effect.model.weights.tobytes(), repr(effect.model.metadata)))
                elif isinstance(effect, Report):
                    seen.append((effect.text, repr(effect.fields)))
                elif isinstance(effect, Save):
                    arrays = {name: np.array(array).tobytes() for name, array in effect.snapshot.arrays.items()}
                    seen.append({name: value for name, value in arrays.items() if "noise" not in name})
            if type(event) is Saved:
                status = machine.node.status(machine.now)
                seen.append(repr({key: value for key, value in status.items() if key != "snapshot_age"}))
            handled(machine, event, effects)

        patches.setattr(world.invariants, "handled", observe)
        assert run_world(world) == ""
    return seen


@pytest.mark.parametrize("name", ["private", "private-kills"])
def test_what_is_sent_written_and_logged_depends_on_rows_by_noisy_slopes_only(name, monkeypatch):
    scenario, slopes = replace(load(name), peers=(4, 4)), {}
    first = history(monkeypatch, scenario, generate, slopes)
    assert len(slopes) > 100
    assert history(monkeypatch, scenario, other_rows, slopes) == first
    assert history(monkeypatch, scenario, other_rows, {}) != first
