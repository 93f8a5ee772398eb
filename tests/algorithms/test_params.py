"""Settings by name, as scikit-learn asks for them, without it."""

import subprocess
import sys

import pytest
from sklearn.base import clone
from sklearn.model_selection import ParameterGrid

from gadget_svm.algorithms import Auto, Gadget, Pdmm
from gadget_svm.estimator import GadgetSVC


def test_settings_are_shown_where_they_are_not_the_default():
    assert repr(Pdmm()) == "Pdmm()"
    assert repr(Pdmm(passes=3, neighbours=1)) == "Pdmm(passes=3)"
    assert repr(Gadget(average=1)) == "Gadget(average=1)"  # 1 == True, but is another thing to write
    assert repr(Auto()) == "Auto()"
    assert repr(GadgetSVC(algorithm=Pdmm(theta=0.5))) == "GadgetSVC(algorithm=Pdmm(theta=0.5))"


def test_an_unknown_setting_is_refused_before_any_is_changed():
    algorithm = Pdmm()
    with pytest.raises(ValueError, match=r"unknown parameter of Pdmm 'pases'\. Did you mean 'passes'\?"):
        algorithm.set_params(theta=0.5, pases=2)
    assert algorithm.theta is None


def test_a_grid_goes_through_an_algorithms_settings():
    grid = ParameterGrid({"algorithm__passes": [1, 2], "algorithm__neighbours": [1, "all"]})
    found = [clone(GadgetSVC(algorithm=Pdmm())).set_params(**point).algorithm.get_params() for point in grid]
    assert [(each["passes"], each["neighbours"]) for each in found] == [(1, 1), (2, 1), (1, "all"), (2, "all")]


@pytest.mark.parametrize("module", ["gadget_svm.cluster.actor", "gadget_svm.estimator.shards"])
def test_what_an_actor_runs_does_without_scikit_learn(module):
    """It is most of the time and memory that a process would take to start."""
    said = f"import sys, {module}; sys.exit('sklearn' in sys.modules or 'pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", said], check=False).returncode == 0
