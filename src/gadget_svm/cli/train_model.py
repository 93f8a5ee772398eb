"""Turns a `TrainRequest` into parameters of the estimator, and checks all options before data is read.

The modules that use the values check them; an error names the option as typed.
"""

import json
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from gadget_svm import algorithms, topologies
from gadget_svm.cli.option_names import naming
from gadget_svm.cli.output import place
from gadget_svm.cli.train import TrainRequest
from gadget_svm.core.lookup import lookup
from gadget_svm.core.network import Network
from gadget_svm.data.catalog import ENTRIES
from gadget_svm.data.files import require_file
from gadget_svm.data.partition import SCHEMES
from gadget_svm.estimator import GadgetSVC
from gadget_svm.estimator.validation import DEFAULT_LAM, MAX_SEED, check_parameters
from gadget_svm.faults import FaultContext, make_faults, wrap_all
from gadget_svm.kernels import ThreadTeam
from gadget_svm.privacy import DifferentialPrivacy
from gadget_svm.simulation.engine import UNCERTIFIABLE
from gadget_svm.simulation.stopping import stopping_rule

ALGORITHM_OPTIONS = ("gossip", "gossip_rounds", "local_steps", "batch_size", "average", "project")
"""Parameters of algorithms that have an option of their own."""
RAY_OPTIONS = ("address", "actors", "checkpoint_dir", "resume")
"""Engine options that have an option of their own."""
CONVERTED = {"lam", "algorithm", "fit_intercept", "stopping", "engine_options", "faults"}
PASSED_ON = GadgetSVC().get_params().keys() & {each.name for each in fields(TrainRequest)} - CONVERTED
"""Parameters of the estimator that have an option with the same value."""
WORDS: dict[str, Any] = {"true": True, "false": False, "none": None}
MANY_NODES = 1_000_000
"""If the number of nodes is not known yet, faults may name nodes below this number."""
MAX_NODES_BUILT = 1_000
"""Larger networks are not built for a check, because that would take longer than reading most files."""
STAND_IN_NODES = 100
"""Nodes of the complete network that is checked instead. It gives every node as many neighbours as algorithms need."""


def make_model(request: TrainRequest) -> GadgetSVC:
    """Return the estimator that the request describes."""
    entry = ENTRIES.get(request.name)
    return GadgetSVC(
        lam=lam_or_default(request.lam, None if entry is None or request.C is not None else entry.lam),
        algorithm=make_algorithm(request),
        fit_intercept=wants_intercept(request),
        stopping=stopping_of(request),
        engine_options=engine_options_of(request),
        faults=[fault for _, fault in request.typed_faults] or None,
        privacy=privacy_of(request),
        **{name: getattr(request, name) for name in PASSED_ON},
    )


def privacy_of(request: TrainRequest) -> DifferentialPrivacy | None:
    """Return the privacy budget, if there is one."""
    given = {
        name: getattr(request, name) for name in ("epsilon", "delta", "clip") if getattr(request, name) is not None
    }
    if not given:
        return None
    if "epsilon" not in given:
        raise ValueError(f"--{next(iter(given))} belongs to a privacy budget: add --epsilon, such as --epsilon 1")
    if request.scale != "none":
        raise ValueError(
            f"--scale {request.scale.value} computes statistics of the rows, which --epsilon does not cover: scale the "
            "features by constants beforehand; longer rows are scaled down by --clip"
        )
    return DifferentialPrivacy(**given)


def lam_or_default(given: float | None, own: float | None) -> float:
    """Return the lam given, else the data set's own, else the default."""
    return given if given is not None else DEFAULT_LAM if own is None else own


def wants_intercept(request: TrainRequest) -> bool:
    """Return the user's choice. The default is False for the paper's data sets, as the paper has no intercept."""
    if request.fit_intercept is not None:
        return request.fit_intercept
    entry = ENTRIES.get(request.name)
    return entry is None or entry.builtin is not None


def stopping_of(request: TrainRequest) -> str | None:
    """Return the rule's name; by default the one that suits the algorithm."""
    name = request.stopping or "auto"
    return None if name.lower() == "none" else name


def make_algorithm(request: TrainRequest) -> algorithms.Algorithm:
    """Return the named algorithm with the parameters given beside it."""
    algorithm = algorithms.resolve(request.algorithm)
    if (privacy := privacy_of(request)) is not None:
        algorithm = algorithm.with_privacy(privacy)
    wanted = _algorithm_params(request)
    if isinstance(algorithm, algorithms.Auto) and wanted:
        with naming(" ".join(typed for typed, _ in wanted.values())):
            algorithm = algorithm.with_settings(wanted)
    known = algorithm.get_params(deep=False)
    for name, (typed, value) in wanted.items():
        with naming(typed):
            lookup(f"setting of the algorithm {request.algorithm!r}", name, known)
        algorithm.set_params(**{name: value})
    return algorithm


def _algorithm_params(request: TrainRequest) -> dict[str, tuple[str, Any]]:
    """Return the algorithm's parameters by name, each with its name in error messages and its value."""
    found: dict[str, tuple[str, Any]] = {}
    for name in ALGORITHM_OPTIONS:
        if (given := getattr(request, name)) is not None:
            found[name] = (f"{name}={given}", _value(given) if isinstance(given, str) else given)
    for text in request.settings or []:
        name, value = _named_value("--set", text, "gamma=0.001")
        found[name] = (f"--set {text}", value)
    return found


def _named_value(option: str, text: str, example: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{option} {text}: write NAME=VALUE, for example {option} {example}")
    return name.strip().replace("-", "_"), _value(value.strip())


def _value(text: str) -> Any:
    """Parse the text as a number, true, false, none or a JSON object; otherwise return it unchanged."""
    if text.lower() in WORDS:
        return WORDS[text.lower()]
    for parse in (json.loads, int, float):
        with suppress(ValueError):
            return parse(text)
    if text.startswith("{"):
        raise ValueError(f'{text} is not JSON: write for example resources={{"fast": 1}}')
    return text


def engine_options_of(request: TrainRequest) -> dict[str, Any] | None:
    """Return the options of the engine by name, from --engine-option and the options for Ray."""
    found = dict(_named_value("--engine-option", text, "actors=4") for text in request.engine_options or [])
    own = {name: getattr(request, name) for name in RAY_OPTIONS if getattr(request, name) is not None}
    if request.resume is not None:
        own["resume"] = WORDS.get(request.resume, "auto")
    for name in own:
        option = f"--{name.replace('_', '-')}"
        if request.engine != "ray":
            raise ValueError(f"{option} is for a Ray cluster: add --engine ray, or leave it out")
        if name in found:
            raise ValueError(f"{option} and --engine-option {name} mean the same: give one of them")
    return found | own or None


def partition_of(request: TrainRequest) -> tuple[str, dict[str, Any]]:
    """Return the scheme of --partition and its parameter."""
    with naming(f"--partition {request.partition}"):
        scheme, _, text = request.partition.partition(":")
        lookup("partition scheme", scheme, SCHEMES)
        try:
            if scheme == "sizes":
                return scheme, {"sizes": [float(size) for size in text.split(",")]}
            return scheme, {"alpha": float(text)} if scheme == "label-skew" and text else {}
        except ValueError as error:
            raise ValueError("write sizes:1,2,3 or label-skew:0.1") from error


def check_request(request: TrainRequest) -> None:
    """Raise ValueError for any option that is wrong for all possible rows."""
    with naming(f"--algorithm {request.algorithm}"):
        algorithms.resolve(request.algorithm)
    sizes = partition_of(request)[1].get("sizes", ())
    if sizes and request.n_nodes not in (None, len(sizes)):
        raise ValueError(f"--partition {request.partition} has {len(sizes)} nodes: omit --nodes {request.n_nodes}")
    n_nodes = request.n_nodes or len(request.shards) or len(sizes)
    for typed, fault in request.typed_faults:
        with naming(typed):
            wrap_all(make_faults(fault), FaultContext(n_nodes or MANY_NODES, 0))
    check_parameters(make_model(request))
    ThreadTeam.of(request.n_jobs).close()
    if isinstance(test := place(request.test), Path):
        require_file(test)
    run = _bind(request, _network(request, n_nodes))
    if request.stopping is not None:
        with naming(f"--stopping {request.stopping}"):
            rule = stopping_rule(stopping_of(request), request.tol)
            if rule is not None and rule.certifies and not run.certifiable:
                raise ValueError(UNCERTIFIABLE)


def _network(request: TrainRequest, n_nodes: int) -> Network:
    """Return the network of this training, or a complete graph if the number of nodes is large or not known yet."""
    with naming(f"--topology {request.topology}"):
        topologies.check_name(request.topology)
        if 0 < n_nodes <= MAX_NODES_BUILT:
            seed = request.random_state if request.topology_seed is None else request.topology_seed
            return topologies.build(request.topology, n_nodes, seed=seed & MAX_SEED)
    return topologies.build("complete", STAND_IN_NODES)


def _bind(request: TrainRequest, network: Network) -> Any:
    """Bind the algorithm, which checks its parameters. An error that a single parameter causes names its option."""
    algorithm = make_algorithm(request)
    try:
        return _bound(algorithm, network)
    except (ValueError, TypeError):
        _bound(type(algorithm)(), network)  # if this fails, no parameter is the cause
        for name, (typed, value) in _algorithm_params(request).items():
            with naming(typed):
                _bound(type(algorithm)().set_params(**{name: value}), network)
        raise


def _bound(algorithm: algorithms.Algorithm, network: Network) -> Any:
    return algorithm.bind(algorithm.with_transition_of(network), 1e-3, 1.0, sizes=np.ones(network.n))
