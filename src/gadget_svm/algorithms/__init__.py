"""The learning algorithms by name. They work on blocks and messages only."""

from collections.abc import Callable
from typing import Any

from gadget_svm.algorithms.auto import Auto
from gadget_svm.algorithms.averaged_sgd import AveragedSgd
from gadget_svm.algorithms.base import Algorithm, BaseAlgorithm, BaseRun, Run
from gadget_svm.algorithms.gadget import GadgetRun
from gadget_svm.algorithms.gadget_params import Gadget, gadget_as_printed
from gadget_svm.algorithms.mom_dsvm import MomDsvm
from gadget_svm.algorithms.pdmm import Pdmm
from gadget_svm.algorithms.private_gradient import PrivateGradient
from gadget_svm.algorithms.two_push_sum import TwoPushSum
from gadget_svm.core.registry import Registry

ALGORITHMS: Registry[Callable[[], Algorithm]] = Registry(
    "gadget_svm.algorithms",
    {
        "auto": Auto,
        "asgd": AveragedSgd,  # a pass of local steps between gossips
        "gadget": Gadget,  # the paper's, with Push-Sum's mass persistent
        "gadget-as-printed": gadget_as_printed,  # Push-Sum restarts in each iteration
        "gadget-2ps": TwoPushSum,  # the older version, with two Push-Sum calls
        "mom-dsvm": MomDsvm,
        "pdmm": Pdmm,  # every node reaches the pooled optimum
    },
)


def resolve(algorithm: object) -> Algorithm:
    """Return the algorithm of this name, or the algorithm itself if it is given as an object."""
    found: Algorithm = ALGORITHMS.resolve("algorithm", algorithm, BaseAlgorithm, "Gadget()")
    return found


def no_parameters(name: str, parameter: str, value: Any) -> str:
    """Return the error for a parameter set on an algorithm's name. It lists the instances that take the parameter."""
    made = [make() for make in ALGORITHMS.builtin.values()]
    takers = dict.fromkeys(type(each).__name__ for each in made if parameter in each.get_params())
    given = ", ".join(f"algorithm={taker}({parameter}={value!r})" for taker in takers)
    fix = f"write {given}" if takers else f"no algorithm has a parameter {parameter!r}"
    return f"algorithm={name!r} is a name, so {parameter!r} cannot be set on it: {fix}"


__all__ = [
    "ALGORITHMS", "Algorithm", "Auto", "AveragedSgd", "BaseAlgorithm", "BaseRun", "Gadget", "GadgetRun", "MomDsvm",
    "Pdmm", "PrivateGradient", "Run", "TwoPushSum", "gadget_as_printed", "no_parameters", "resolve",
]  # fmt: skip
