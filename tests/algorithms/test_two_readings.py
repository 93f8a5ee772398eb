"""The two readings of Algorithm 2: Push-Sum restarted in each iteration, as printed, and mass that persists."""

import numpy as np
import pytest

from gadget_svm import Gadget, GadgetSVC, build_network
from gadget_svm.algorithms import gadget_as_printed

SETTINGS = {"lam": 0.05, "max_iter": 30, "stopping": None, "random_state": 0}


def test_as_printed_restarts_push_sum_until_it_has_mixed(toy):
    printed, ours = (GadgetSVC(3, algorithm=each, **SETTINGS) for each in ("gadget-as-printed", "gadget"))
    printed.fit(toy.X, toy.y, sites=toy.sites)
    ours.fit(toy.X, toy.y, sites=toy.sites)
    rounds = gadget_as_printed().bind(printed.network_, 0.05, 1.0).rounds
    assert rounds > 5
    assert printed.history_[-1]["messages"] == rounds * ours.history_[-1]["messages"] == rounds * 30 * 3
    assert printed.history_[-1]["disagreement"] < 0.01 < ours.history_[-1]["disagreement"]
    assert printed.gossip_ == ours.gossip_ == "push-sum"


@pytest.mark.parametrize(
    ("algorithm", "persist"),
    [
        (gadget_as_printed(), False),
        (Gadget(), True),
        (Gadget(gossip_rounds=5), True),
        (Gadget(gossip_rounds=5, mass="restarted"), False),
        (Gadget(gossip_rounds="mix"), False),
        (Gadget(gossip_rounds="mix", mass="persistent"), True),
    ],
    ids=str,
)
def test_mass_says_which_reading_runs(algorithm, persist):
    assert algorithm.bind(build_network("ring", 5), 0.1, 1.0).persist is persist


def test_an_unknown_reading_is_refused():
    with pytest.raises(ValueError, match=r"unknown mass 'restart'\. Did you mean 'restarted'\?"):
        Gadget(mass="restart").bind(build_network("ring", 5), 0.1, 1.0)


def test_restarted_mass_averages_the_vectors_of_this_iteration_only(toy):
    """With one round of diffusion on two nodes, each gets the mean weighted by n_i at once."""
    run = Gadget(gossip="diffusion", mass="restarted", average=False, project=False)
    model = GadgetSVC(2, topology=np.full((2, 2), 0.5), algorithm=run, **SETTINGS).fit(toy.X, toy.y)
    np.testing.assert_allclose(model.node_coef_[0], model.node_coef_[1], rtol=1e-12)
