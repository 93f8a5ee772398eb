"""`GadgetSVC`: a linear SVM learned by gossiping nodes, with scikit-learn's manners.

Owns validation and wiring. The constructor only stores; the algorithm, the network and the loop are elsewhere.
"""

import numbers
import warnings
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import _ovr_decision_function
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from gadget_svm import algorithms, topologies
from gadget_svm.algorithms import Algorithm
from gadget_svm.core.network import Network
from gadget_svm.core.types import Floats
from gadget_svm.data.catalog import against_rest
from gadget_svm.data.paper_datasets import Parts
from gadget_svm.data.partition import deal_by_sites
from gadget_svm.estimator.advice import mass_advice, not_converged, rest_advice
from gadget_svm.estimator.fitting import Fitted, NodeState, Plan, TrainingProblem, fit_network
from gadget_svm.estimator.problem import (
    Problem,
    as_csr,
    checked_nodes,
    one_per_row,
    pairs_of,
    row_weights,
    share_batch,
    share_rows,
)
from gadget_svm.estimator.shards import Agreed, are_places, is_dataset, require_list, stack_shards
from gadget_svm.estimator.sites import in_names, name_shards, node_names, node_number
from gadget_svm.estimator.validation import (
    check_memory,
    check_parameters,
    lam_of,
    require_classes,
    require_one_kind,
    rule_for,
)
from gadget_svm.simulation.stopping import stopping_rule
from gadget_svm.simulation.trainer import Limits, Observe, Record, no_observer

SEEDS = 2**63 - 1


class GadgetSVC(LinearClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear support vector classifier learned by gossip between nodes that keep their rows.

    Parameters
    ----------
    n_nodes : int or None
        Nodes to deal the rows out to; None: those of a given graph, else min(10, rows). Overridden by ``sites``.
    topology : str, networkx graph, sparse or dense matrix, or Network
        Who gossips with whom; a name may carry a parameter ("k-out:20"). The nodes of a networkx graph keep their
        labels, by which ``sites`` are matched and `node` finds them. A matrix of zeros and ones is an adjacency; other
        numbers (also as weights of a networkx graph's edges) must be a transition matrix B, whose rows sum to one. It
        is used by algorithms with Push-Sum ("gadget", "asgd"; "auto" is then GADGET), others refuse it.
    lam : float
        The weight of the regulariser in F(w) = lam/2 |w|^2 + sum_r s_r c_r hinge_r(w) / sum_r s_r c_r, with s_r the
        sample weight and c_r the class weight of row r. Multiplying all weights by a number changes nothing.
    C : float or None
        Used in place of ``lam``: the objective is then that of ``LinearSVC(C=C, loss="hinge")``,
        1/2 |w|^2 + C sum_r s_r c_r hinge_r(w), that is lam = 1 / (C sum_r s_r c_r). With ``C``, leave ``lam`` at its
        default: any other value is an error. ``lam_`` is what was used. Objectives in ``history_`` are F; F / lam_ is
        LinearSVC's. `partial_fit` needs ``lam``.
    algorithm : str or instance
        "auto", a name ("gadget" is the paper's, "pdmm" brings every node to the optimum), or an instance such as
        ``Gadget(local_steps=10)``. "auto" is PDMM where it applies, see `gadget_svm.algorithms.Auto`.
    fit_intercept : bool
        Whether a regularised constant feature travels with the weights.
    class_weight : dict, "balanced" or None
        Weights of the classes. They have one meaning with ``sample_weight``: a class weight of 3 and a sample weight
        of 3 for all rows of the class give the same model, as does each of those rows three times. "balanced" is
        scikit-learn's, n_samples / (n_classes * rows of the class). With more than two classes every row has its weight
        in every output; LinearSVC gives the class weight to an output's own class only.
    multi_class : "ovr" or "ovo"
        For more than two classes: one output a class, against the rest, or one output for every two classes (one
        against one), which sees the rows of these two only. All outputs are trained side by side, with the same
        ``lam`` or ``C``: for the classes a and b, F(w) = lam/2 |w|^2 + sum_{r in a or b} s_r c_r hinge_r(w) / sum_r
        s_r c_r, which is the problem of ``OneVsOneClassifier(LinearSVC(C=C, loss="hinge"))`` with lam = 1 / (C sum_r
        s_r c_r). `predict` and `decision_function` (rows x classes) count votes as OneVsOneClassifier does. "ovr" is
        cheaper in messages; "ovo" is for classes that overlap, where the best answer of each "ovr" output may be "rest"
        for nearly all rows. `fit` warns of that, judging by at most 1,000 rows.
    tol : float or None
        Tolerance of the stopping rule; None: the rule's own (0.001 for the paper's, 0.01 for "gap").
    stopping : "auto", "average", "weights", "objective", "gap" or None
        What must come to rest: the averaged iterates, the weights (the paper's rule), the objective. "gap" waits until
        the nodes have certified a model to be at most ``tol`` above the optimum, as a part of it: every node that is
        here then answers with that model, and ``gap_bound_`` is its bound (else None). With several classes objective
        and optimum are sums over the outputs; ``output_gap_bounds_`` has the bound of each output by itself.
        ``certified_nodes_`` are the nodes whose rows count: all but those that are declared dead. It needs an algorithm
        that keeps dual variables, "pdmm" or "mom-dsvm". "auto" is "gap" for algorithms that can, else "average", or
        "objective" if there is none. ``converged_`` says whether the rule was met: under "gap" that ``gap_bound_`` is
        at most ``tol``.
    max_iter : int
        At most so many iterations, each one local step and one gossip exchange of every node.
    max_seconds : float or None
        At most so much training time.
    record_every : int or None
        Iterations between records of ``history_``; 0: only the last. None: at 4, 8, 16, ... and the last; they cost
        about a tenth of the fit, as only the last one evaluates the worst node (``worst_objective``). Of more than 200
        nodes an even sample of at most 200 is evaluated, and the name is ``worst_sampled_objective``.
    engine : "local" or "ray"
        Where the nodes run: in this process, or in the actors of a Ray cluster, with the same result bit for bit.
    engine_options : dict or None
        For "local": {"blocks": number of blocks the nodes are split over}. For "ray": address, actors, num_cpus,
        timeout, checkpoint_dir and others, see docs/reference/ray.md.
    faults : str, dict, list or None
        What goes wrong: "loss=0.1", {"loss": 0.1, "delay": 2}, [Crash(nodes=[3], at=100)]. Faults count nodes by
        their position in ``sites_``, from 0.
    n_jobs : int or None
        Threads; -1: every core. None: every core, but no more than NUMBA_NUM_THREADS, OMP_NUM_THREADS or threadpoolctl
        allow, and one inside a joblib worker that shares its cores. The result does not depend on it.
    random_state : int, RandomState or None
    verbose : int
        1 prints a line per record.
    """

    def __init__(
        self,
        n_nodes: int | None = None,
        topology: Any = "random-regular",
        lam: float = 1e-4,
        algorithm: Any = "auto",
        fit_intercept: bool = True,
        class_weight: Any = None,
        tol: float | None = None,
        stopping: str | None = "auto",
        max_iter: int = 10_000,
        max_seconds: float | None = None,
        record_every: int | None = None,
        engine: str = "local",
        engine_options: dict[str, Any] | None = None,
        faults: Any = None,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
        C: float | None = None,
        multi_class: str = "ovr",
    ) -> None:
        self.n_nodes = n_nodes
        self.topology = topology
        self.lam = lam
        self.algorithm = algorithm
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.tol = tol
        self.stopping = stopping
        self.max_iter = max_iter
        self.max_seconds = max_seconds
        self.record_every = record_every
        self.engine = engine
        self.engine_options = engine_options
        self.faults = faults
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose
        self.C = C
        self.multi_class = multi_class

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, sites: ArrayLike | None = None) -> Self:
        """Learn from rows X with labels y.

        ``sites`` names the node that owns each row. If ``topology`` is a networkx graph, sites and nodes are matched by
        label. Otherwise nodes are the sites in sorted order: the first row of an adjacency matrix is the first of them.
        ``sites_`` lists the names of the nodes, ``node(name)`` is the model of one.
        """
        return self.fit_observed(X, y, sample_weight=sample_weight, sites=sites)

    def fit_observed(
        self,
        X: Any,
        y: ArrayLike,
        *,
        sample_weight: ArrayLike | None = None,
        sites: ArrayLike | None = None,
        observe: Observe = no_observer,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Self:
        """`fit` under observation: ``observe(record, mean_model)`` at every record; it ends when ``should_stop()``."""
        check_parameters(self)
        if is_dataset(X):
            if sample_weight is not None or sites is not None:
                raise ValueError("a Ray Dataset is shared out as it is: weights and sites of its rows are not known")
            if not isinstance(y, str | None):
                raise TypeError(
                    "X is a Ray Dataset, which has its labels in a column: y must be that column's name, such as "
                    f"'label', got {type(y).__name__}"
                )
            return self._fit_remote(X, y, observe, should_stop)
        X, label, times = self._validated(X, y, sample_weight, reset=True)
        present = np.unique(label if times is None else label[times > 0])
        if len(present) < 2:
            raise ValueError(
                f"the data has only one class{'' if times is None else ' of positive weight'}, "
                f"{self.classes_.tolist()[present[0]]!r}: a classifier needs rows of at least two"
            )
        seed = self._seed()
        shares, self.sites_ = share_rows(
            X, label, self._nodes(), seed, times, sites, topologies.labels_of(self.topology)
        )
        self._forget(seed)
        self._connect(algorithms.resolve(self.algorithm))
        self._learn(X, label, times, shares, self.max_iter, self.stopping, observe, should_stop)
        self._warn(X if times is None or times.all() else X[times > 0])
        return self

    def decision_function(self, X: Any) -> Floats:
        """Signed distances (times |w|) of the rows: one a row for two classes, else one a row and class.

        With multi_class="ovo" the votes of the outputs, plus a part below one half of their summed distances, as in
        scikit-learn's OneVsOneClassifier.
        """
        scores: Floats = super().decision_function(X)
        if scores.ndim == 1 or self.multi_class_ != "ovo":
            return scores
        votes: Floats = _ovr_decision_function((scores > 0).astype(int), scores, len(self.classes_))
        return votes

    def _warn(self, X: Any = None) -> None:
        """Say why a fit ended early or predicts badly, and what would help. X is None where the rows are elsewhere."""
        if self.stopping is not None and not self.converged_ and self.stopped_by_ != "interrupted":
            warnings.warn(not_converged(self, X, self._mass_left), ConvergenceWarning, stacklevel=4)
        elif lost := mass_advice(self._mass_left):
            warnings.warn(lost, UserWarning, stacklevel=4)
        if X is not None and (rest := rest_advice(self, X)):
            warnings.warn(rest, UserWarning, stacklevel=4)

    def partial_fit(
        self,
        X: Any,
        y: ArrayLike,
        classes: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        sites: ArrayLike | None = None,
    ) -> Self:
        """Go on learning, for one pass over these rows. The first call needs all ``classes``."""
        check_parameters(self)
        first = not hasattr(self, "coef_")
        self._check_batch(first, classes)
        X, label, times = self._validated(X, y, sample_weight, reset=first, classes=classes)
        if first:
            self._begin_network(None if sites is None else one_per_row(sites, label))
        elif type(self.algorithm_) is not type(self._for_batches()):  # after a fit of all rows at once
            self._connect(self._for_batches())
        shares = share_batch(X, label, self.sites_, (self._fit_seed + self.n_iter_) & SEEDS, times, sites)
        one_pass = self.algorithm_.iterations_per_pass(int(shares.sizes.max()))
        self._learn(X, label, times, shares, min(one_pass, self.max_iter), None)
        return self

    def fit_shards(
        self,
        shards: Iterable[Any],
        *,
        label: str | None = None,
        positive: str | None = None,
        sites: Sequence[Hashable] | None = None,
        format: str | None = None,
        agreed: Callable[[Agreed], None] | None = None,
        observe: Observe = no_observer,
        should_stop: Callable[[], bool] = lambda: False,
    ) -> Self:
        """Learn from one (X, y) pair, or one data file, per node.

        With engine="ray" files and URIs (s3://, https://, ...) are read by the actors, and no row passes through here.
        A Ray Dataset is taken too: its rows in order, shared out evenly. ``label`` is the label's column in files, by
        name or number, and ``positive`` the label that becomes +1, and all others -1. ``sites`` names the shards (by
        default 0, 1, ...), and nodes come in the sorted order of these names. ``format`` is that of files that are read
        here (svmlight, csv, tsv, parquet or npz; default: by their ending). ``agreed(what)`` is told what is known of
        the shards before anything is learned; ``observe`` and ``should_stop`` are those of `fit_observed`.
        """
        require_list(shards)
        if is_dataset(shards):
            if sites is not None:
                raise ValueError("a Ray Dataset is shared out by position: leave sites out")
            check_parameters(self)
            return self._fit_remote(shards, label, observe, should_stop, positive, agreed)
        shards, names = name_shards(list(shards), sites, topologies.labels_of(self.topology))
        if self.engine == "ray" and are_places(shards):
            if format is not None:
                raise ValueError(f"format={format!r}: actors know a file's format by its ending: rename the files")
            check_parameters(self)
            return self._fit_remote(shards, label, observe, should_stop, positive, agreed, names)
        stack = stack_shards(shards, label, format)
        y = against_rest(Parts(stack.X, stack.y), positive).y
        if agreed is not None:
            agreed(stack.agreed())
        owners: Any = stack.sites if sites is None else [names[i] for i in stack.sites.tolist()]
        return self.fit_observed(stack.X, y, sites=owners, observe=observe, should_stop=should_stop)

    def _fit_remote(
        self, shards: Any, label: str | None = None, observe: Observe = no_observer,
        should_stop: Callable[[], bool] = lambda: False,
        positive: str | None = None, agreed: Callable[[Agreed], None] | None = None,
        names: list[Hashable] | None = None,
    ) -> Self:  # fmt: skip
        """Learn from shards that the actors of a cluster read."""
        if self.engine != "ray":
            raise ValueError("a Ray Dataset is read by Ray's actors: use engine='ray'")
        from gadget_svm.estimator import remote_shards

        options = dict(self.engine_options or {})
        if is_dataset(shards):
            runtime = remote_shards.start_dataset(shards, self._nodes(), label, options)
        else:
            runtime = remote_shards.start_files(remote_shards.shard_names(shards), options, label)
        try:
            settings = self.class_weight, self.fit_intercept, positive, self.multi_class
            problem, self.classes_, known = remote_shards.pose(runtime, *settings)
            if agreed is not None:
                agreed(known)
            self.n_features_in_ = problem.X.shape[1] - bool(self.fit_intercept)
            self.__dict__.pop("feature_names_in_", None)
            count, labels = len(problem.shares.start) - 1, topologies.labels_of(self.topology)
            self.sites_ = node_names(count, labels) if names is None else names
            self._forget(self._seed())
            self._connect(algorithms.resolve(self.algorithm))
            self._solve(problem, self.max_iter, self.stopping, observe, should_stop)
        finally:
            runtime.close()
        self._warn()
        return self

    def node(self, site: Hashable) -> "GadgetSVC":
        """The model of one node, usable by itself: it predicts, scores and can be saved like any other.

        ``site`` is the name of the node, an entry of ``sites_``: a label given as ``sites`` or a label of the networkx
        graph; 0, 1, ... if there are neither. Where no name is a number, a whole number is a position in ``sites_``.
        """
        check_is_fitted(self)
        i = node_number(self.sites_, site)
        alone = copy(self)
        alone.coef_, alone.intercept_ = np.atleast_2d(self.node_coef_[i]), np.atleast_1d(self.node_intercept_[i])
        for name in ("node_coef_", "node_intercept_", "node_last_coef_", "node_last_intercept_", "sites_"):
            if hasattr(self, name):  # a model read from a file has no last iterates
                setattr(alone, name, getattr(self, name)[i : i + 1])
        alone.__dict__.pop("_memory", None)  # it is the network that goes on learning
        return alone

    def _begin_network(self, sites: ArrayLike | None) -> None:
        """The nodes of a network that learns batch by batch: as many as asked, or 10, or the sites of this batch."""
        self._forget(self._seed())
        asked = self._nodes()
        labels = topologies.labels_of(self.topology)
        nodes = node_names(10 if asked is None else checked_nodes(asked), labels)
        by_site = nodes if sites is None else labels or deal_by_sites(sites)[1]  # a batch need not have all of them
        self.sites_ = by_site
        self._connect(self._for_batches())

    def _for_batches(self) -> Algorithm:
        """The algorithm for rows that come batch by batch."""
        return algorithms.resolve(self.algorithm).for_batches()

    def _nodes(self) -> int | None:
        """As many as asked for, else as the given graph has."""
        return topologies.nodes_of(self.topology) if self.n_nodes is None else self.n_nodes

    def _connect(self, algorithm: Algorithm) -> None:
        """The network of the nodes there are, weighed as the algorithm wants it, and that algorithm."""
        network = topologies.build(self.topology, len(self.sites_), seed=self._fit_seed)
        given = isinstance(self.topology, Network)  # it brings its own B
        self.algorithm_ = algorithm.for_network(network)
        self.network_ = network if given else self.algorithm_.with_transition_of(network)

    def _forget(self, seed: int) -> None:
        self._fit_seed, self._asked_nodes = seed, self.n_nodes
        self._memory: NodeState | None = None
        self.history_: list[Record] = []
        self.n_iter_ = 0

    def _validated(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool, classes: ArrayLike | None = None
    ) -> tuple[Any, NDArray[np.int32], Floats | None]:
        """X as CSR with its constant feature, class numbers, and weights; sets ``classes_`` on the first look."""
        require_one_kind(y, "y")
        X, y = validate_data(self, X, y, accept_sparse="csr", dtype=np.float64, reset=reset, accept_large_sparse=True)
        require_classes(y)
        if reset:
            require_one_kind(classes, "classes")
            self.classes_ = np.unique(y if classes is None else classes)
        known = reset and classes is None
        if not known and len(strangers := np.setdiff1d(y, self.classes_)):
            raise ValueError(f"label {strangers.tolist()[0]!r} is not among the classes {self.classes_.tolist()}")
        label = np.searchsorted(self.classes_, y).astype(np.int32)
        times = None
        if sample_weight is not None:
            times = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        times = row_weights(self.class_weight, self.classes_, label, times)
        if times is not None and not times.any():
            raise ValueError("all weights are zero: no row is left to learn from")
        if times is not None and not 1e-150 <= times.max() <= 1e150:
            raise ValueError(
                f"the largest weight, sample weight times class weight, is {times.max():.3g}; beyond 1e150 or below "
                "1e-150 sums of squares overflow: divide all weights by their mean, which changes nothing with lam"
            )
        return as_csr(X, self.fit_intercept), label, times

    def _learn(
        self, X: Any, label: Any, times: Any, shares: Any, max_iter: int, stopping: str | None,
        observe: Observe = no_observer, should_stop: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        pairs = pairs_of(len(self.classes_), self.multi_class)
        outputs = len(pairs) or (1 if len(self.classes_) == 2 else len(self.classes_))
        if len(pairs) and self.engine == "local":
            check_memory(len(self.network_.indices), len(self.sites_), outputs, X.shape[1], len(label))
        problem = Problem(
            X, label, np.ones(len(label)), times, shares, self.sites_, outputs, pairs, bool(self.fit_intercept)
        )
        self._solve(problem, max_iter, stopping, observe, should_stop)

    def _solve(
        self,
        problem: TrainingProblem,
        max_iter: int,
        stopping: str | None,
        observe: Observe,
        should_stop: Callable[[], bool],
    ) -> None:
        self.stopping_ = rule_for(self.algorithm_) if stopping == "auto" else stopping
        self.multi_class_ = self.multi_class
        self.lam_: float | None = lam_of(self, float(problem.shares.sizes.sum()))
        plan = Plan(
            self.algorithm_, self.network_, self.lam_, self._fit_seed,
            stopping_rule(self.stopping_, self.tol), Limits(max_iter, self.max_seconds, should_stop), self.record_every,
            self.faults, self.n_jobs, self._observer(observe), self.engine, dict(self.engine_options or {}),
        )  # fmt: skip
        self._keep(fit_network(problem, plan, self._memory))

    def _observer(self, observe: Observe) -> Observe:
        def tell(record: Record, mean: Floats) -> None:
            observe(record, mean)
            if self.verbose:
                print(
                    f"iteration {record['iteration']:>8}  objective {record['objective']:.6f}  "
                    f"disagreement {record['disagreement']:.2e}  {record['seconds']:.2f} s",
                    flush=True,
                )

        return tell

    def _keep(self, fitted: Fitted) -> None:
        """Everything a fitted model shows."""
        outcome, d = fitted.outcome, self.n_features_in_
        binary = len(self.classes_) == 2
        nodes, last = (models[:, 0] if binary else models for models in (fitted.models, fitted.last))
        self.node_coef_, self.node_last_coef_ = nodes[..., :d].copy(), last[..., :d].copy()
        self.node_intercept_ = nodes[..., d].copy() if self.fit_intercept else np.zeros(nodes.shape[:-1])
        self.node_last_intercept_ = last[..., d].copy() if self.fit_intercept else np.zeros(last.shape[:-1])
        self.coef_ = fitted.mean[:, :d].copy()
        self.intercept_ = fitted.mean[:, d].copy() if self.fit_intercept else np.zeros(len(fitted.mean))
        earlier = self.history_[-1]["seconds"] if self.history_ else 0.0
        later = [{**record, "seconds": earlier + record["seconds"]} for record in outcome.history]
        self.history_ = self.history_ + later
        self.n_iter_ += outcome.n_iter
        self.converged_, self.movement_ = outcome.converged, outcome.movement
        self.stopped_by_: str | None = outcome.reason
        self.gap_bound_ = None if outcome.certificate is None else outcome.certificate.relative
        self.output_gap_bounds_ = None if outcome.certificate is None else outcome.certificate.relatives
        self.certified_nodes_ = None if outcome.certificate is None else outcome.certificate.nodes
        self.remark_ = in_names(outcome.remark, self.sites_)
        self._memory, self.gossip_, self._mass_left = fitted.memory, fitted.gossip, fitted.mass_left

    def _check_batch(self, first: bool, classes: ArrayLike | None) -> None:
        """Whether partial_fit can begin, or go on, with these classes."""
        if first and classes is None:
            raise ValueError("the first call of partial_fit needs classes: all labels that will ever occur")
        if not first and not hasattr(self, "_memory"):
            raise ValueError("a model of one node, or read from a file, does not go on learning: fit a network anew")
        if not first and classes is not None and not np.array_equal(np.unique(classes), self.classes_):
            raise ValueError(f"classes are fixed by the first call: {self.classes_.tolist()}, now {classes!r}")
        if not first and len(self.classes_) > 2 and self.multi_class != self.multi_class_:
            raise ValueError(
                f"the outputs were trained with multi_class={self.multi_class_!r}, now it is {self.multi_class!r}: set "
                "it back, or begin with fit or a clone"
            )
        if not first and self.n_nodes not in (self._asked_nodes, len(self.sites_)):
            raise ValueError(
                f"the network has {len(self.sites_)} nodes (n_nodes was {self._asked_nodes}), now n_nodes is "
                f"{self.n_nodes}: set it back, or begin with fit or a clone"
            )
        memory = None if first else self._memory
        if memory is not None and bool(self.fit_intercept) != memory.w.shape[-1] - self.n_features_in_:
            raise ValueError(
                f"fit_intercept was {not self.fit_intercept}, now it is {self.fit_intercept}: set it back, or begin "
                "with fit or a clone"
            )
        if self.C is not None:
            raise ValueError("C needs the number of all rows: give partial_fit lam, which is 1 / (C * number of rows)")
        if self.class_weight == "balanced":
            raise ValueError("class_weight='balanced' needs all rows at once: give partial_fit a dict of weights")

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; ``algorithm__NAME`` is a parameter of the algorithm, if that is an instance."""
        algorithm = params.get("algorithm", self.algorithm)
        if isinstance(algorithm, str):
            for name, value in params.items():
                if name.startswith("algorithm__"):
                    raise ValueError(algorithms.no_parameters(algorithm, name.removeprefix("algorithm__"), value))
        super().set_params(**params)
        return self

    def _seed(self) -> int:
        if isinstance(self.random_state, numbers.Integral):
            return int(self.random_state) & SEEDS
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
