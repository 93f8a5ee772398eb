"""`GadgetSVC`: a linear SVM learned by gossiping nodes, compatible with scikit-learn.

The constructor only stores its parameters. `fit` validates, makes a problem and a plan (`attributes`), calls
`fitting.fit_network`, and sets the fitted attributes.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.utils.multiclass import _ovr_decision_function
from sklearn.utils.validation import check_is_fitted

from gadget_svm import algorithms, topologies
from gadget_svm.core.types import Floats
from gadget_svm.data.tables import binarize_labels
from gadget_svm.estimator import attributes
from gadget_svm.estimator.advice import warn_after_fit
from gadget_svm.estimator.fitting import fit_network
from gadget_svm.estimator.problem import name_shards, one_per_row, share_batch, share_rows
from gadget_svm.estimator.shards import DataSummary, are_places, is_dataset, require_list, stack_shards
from gadget_svm.estimator.validation import MAX_SEED, check_batch, check_parameters, make_problem, validate_rows
from gadget_svm.privacy import DifferentialPrivacy


@dataclass(repr=False, eq=False)
class GadgetSVC(LinearClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Linear support vector classifier learned by gossip between nodes that keep their rows.

    Parameters
    ----------
    n_nodes : int or None, default None
        The number of nodes; None: as many as a given graph has, else min(10, rows). ``sites`` override it.
    topology : str, networkx graph, sparse or dense matrix, or Network, default "random-regular"
        Which nodes gossip with each other. A name may have a parameter ("k-out:20"). The nodes of a networkx graph keep
        their labels, which ``sites`` and `node` use. A matrix of zeros and ones is an adjacency matrix. Other numbers
        (also the edge weights of a networkx graph) must form a transition matrix B, whose rows sum to one. Algorithms
        with Push-Sum ("gadget", "asgd") use it, and "auto" is then GADGET; other algorithms refuse it.
    lam : float, default 1e-4
        The weight of the regulariser in F(w) = lam/2 |w|^2 + sum_r s_r c_r hinge_r(w) / sum_r s_r c_r, with s_r the
        sample weight and c_r the class weight of row r. Multiplying all weights by the same number changes nothing.
    algorithm : str or Algorithm, default "auto"
        "auto", a name ("gadget" is the paper's, "pdmm" brings every node to the optimum), or an object such as
        ``Gadget(local_steps=10)`` or your own, see `gadget_svm.algorithms.base`. "auto" is PDMM where it applies, see
        `gadget_svm.algorithms.Auto`.
    fit_intercept : bool, default True
        Whether to add a constant feature, which is regularised.
    class_weight : dict, "balanced" or None, default None
        Weights of the classes. They mean the same as ``sample_weight``: a class weight of 3, a sample weight of 3 for
        all rows of the class, and three copies of each of these rows give the same model. "balanced" is
        n_samples / (n_classes * rows of the class). With more than two classes every row has its weight in every
        output; LinearSVC gives the class weight to an output's own class only.
    tol : float or None, default None
        Tolerance of a stopping rule given by name; None: the rule's default (0.001 for "weights", 0.01 for "gap").
    stopping : str, StoppingRule or None, default "auto"
        When the training ends. "average", "weights" (the paper's rule) or "objective": when the averaged iterates, the
        weights or the objective no longer change. "gap": when the nodes certify that a model's objective is at most
        ``tol`` above the optimum, relative to it. Then every node that took part has that model, and ``gap_bound_`` is
        its bound. With several classes, objective and optimum are sums over the outputs. "gap" needs an algorithm that
        keeps dual variables, "pdmm" or "mom-dsvm". "auto" is "gap" if the algorithm supports it, else "average", or
        "objective" if the algorithm keeps no average. An object is a rule of your own, see
        `gadget_svm.BaseStoppingRule`. None: only ``max_iter`` and ``max_seconds`` end the training.
    max_iter : int, default 10000
        The largest number of iterations, each one local step and one gossip exchange of every node.
    max_seconds : float or None, default None
        The largest training time.
    record_every : int or None, default None
        Iterations between records of ``history_``; 0: only the last record. None: records at iterations 4, 16, 64, ...
        and at the last; they cost less than a tenth of the fit, because only the last one evaluates the worst node
        (``worst_objective``). If there are more than 200 nodes, an even sample of at most 200 is evaluated, and the
        name is ``worst_sampled_objective``.
    engine : "local" or "ray", default "local"
        Where the nodes run: in this process, or in the actors of a Ray cluster, with the same result bit for bit.
    engine_options : dict or None, default None
        For "local": {"blocks": number of blocks the nodes are split over}. For "ray": address, actors, num_cpus,
        timeout, checkpoint_dir and others, see docs/reference/ray.md.
    faults : str, dict, Fault, list or None, default None
        Faults to simulate: "loss=0.1", {"loss": 0.1, "delay": 2}, [Crash(nodes=[3], at=100)]. Faults count nodes by
        their position in ``sites_``, from 0.
    n_jobs : int or None, default None
        Number of threads; -1: one per core. None: one per core, but no more than NUMBA_NUM_THREADS, OMP_NUM_THREADS or
        threadpoolctl allow, and one inside a joblib worker that shares its cores. The result does not depend on it.
    random_state : int, RandomState or None, default None
        Seed of all random draws.
    verbose : int, default 0
        1 prints a line per record.
    C : float or None, default None
        Used in place of ``lam``: the objective is then that of ``LinearSVC(C=C, loss="hinge")``,
        1/2 |w|^2 + C sum_r s_r c_r hinge_r(w), that is lam = 1 / (C sum_r s_r c_r). With ``C``, leave ``lam`` at its
        default: any other value is an error. `partial_fit` needs ``lam``.
    multi_class : "ovr" or "ovo", default "ovr"
        For more than two classes. "ovr": one output per class, against the rest. "ovo": one output per pair of classes
        (one against one), which uses only the rows of these two. All outputs are trained at once, with the same
        ``lam`` or ``C``: for the classes a and b, F(w) = lam/2 |w|^2 + sum_{r in a or b} s_r c_r hinge_r(w) / sum_r
        s_r c_r, the problem of ``OneVsOneClassifier(LinearSVC(C=C, loss="hinge"))`` with lam = 1 / (C sum_r s_r c_r).
        `predict` and `decision_function` count votes as OneVsOneClassifier does. "ovr" needs smaller messages. "ovo"
        suits classes that overlap: there every "ovr" output may answer "rest" for nearly all rows, and `fit` warns.
    topology_seed : int or None, default None
        Seed of a random graph; None: the seed of ``random_state``.
    partition_seed : int or None, default None
        Seed of the assignment of rows to nodes; None: the seed of ``random_state``.
    observers : list of Observer or None, default None
        Objects that see every record and every node's model, and may ask to stop, see `gadget_svm.Observer`.
    privacy : DifferentialPrivacy or None, default None
        A budget of differential privacy per row for everything that nodes send, see `gadget_svm.DifferentialPrivacy`
        and docs/how-to/privacy.md. The algorithm "auto" is then `PrivateGradient`. The noise does not depend on
        ``random_state``, unless the budget asks for seeded noise. The budget does not cover ``history_``, `score` and
        anything else that you compute from the rows. Weights are divided by the largest class weight, and the losses
        are averaged over the rows.

    Attributes
    ----------
    coef_ : ndarray, (1 or outputs) x features
        The network average: the mean of the nodes' weights, weighted by their rows. With "gap", the certified model.
    intercept_ : ndarray, 1 or outputs
    classes_ : ndarray
        The labels.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        The columns' names, if X has names.
    node_coef_ : ndarray, nodes x (outputs x) features
        Every node's weights. For two classes there is no axis of outputs.
    node_intercept_ : ndarray, nodes (x outputs)
    node_last_coef_, node_last_intercept_ : ndarray
        Every node's last iterate. It differs from ``node_coef_`` if models are averages of iterates.
    sites_ : list
        The nodes' labels, in the order of ``node_coef_``.
    network_ : Network
        The graph, with its transition matrix.
    algorithm_ : Algorithm
        The algorithm that was used.
    gossip_ : str
        The gossip protocol that was used, or how messages travelled: "push", "broadcast".
    lam_ : float
        The regularisation that was used.
    multi_class_ : str
        "ovr" or "ovo".
    stopping_ : str or None
        The name of the stopping rule that was used, or the class of a rule given as an object.
    tol_ : float or None
        Its tolerance.
    converged_ : bool
        Whether the stopping rule was met.
    stopped_by_ : str
        "converged", "max_iter", "max_seconds" or "interrupted".
    movement_ : float
        The figure that the stopping rule last compared with its tolerance.
    n_iter_ : int
        Iterations done.
    history_ : list of dict
        Records: iteration, seconds, objective, error, disagreement, messages, bytes and more. Objectives are F;
        F / lam_ is LinearSVC's.
    gap_bound_ : float or None
        The certified bound of F(coef_) / F* - 1; None without a certificate.
    output_gap_bounds_ : ndarray or None
        The bound of each output by itself.
    certified_nodes_ : ndarray of int or None
        Positions of the nodes whose rows the certificate counts: all nodes except those declared dead.
    certificate_note_ : str
        Why there is no certificate, or whose rows it counts if it does not count all.
    privacy_ : dict or None
        What a private training spent: epsilon, delta, clip, rounds, planned_rounds, noise_multiplier, and noise, which
        is "secret" or "seeded".
    study_ : dict
        Only in a model that peers wrote: kind ("certified", "agreed", "current" or "partition"), study, study_digest,
        time, ticks; with a certificate also its id, gap_bound, sites (name, incarnation, rows) and rows.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> from gadget_svm import GadgetSVC
    >>> X, y = make_classification(300, 5, n_redundant=0, random_state=0)
    >>> model = GadgetSVC(n_nodes=4, lam=0.01, random_state=0).fit(X, y)
    >>> model.coef_.shape, model.node_coef_.shape
    ((1, 5), (4, 5))
    >>> model.gap_bound_ <= 0.01  # certified by the nodes themselves
    True

    Every node has a model of its own:

    >>> bool(model.node(2).score(X, y) > 0.9)
    True

    and the history shows the cost:

    >>> sorted(model.history_[-1])[:4]
    ['bound', 'bytes', 'disagreement', 'error']
    """

    n_nodes: int | None = None
    topology: Any = "random-regular"
    lam: float = 1e-4
    algorithm: Any = "auto"
    fit_intercept: bool = True
    class_weight: Any = None
    tol: float | None = None
    stopping: Any = "auto"
    max_iter: int = 10_000
    max_seconds: float | None = None
    record_every: int | None = None
    engine: str = "local"
    engine_options: dict[str, Any] | None = None
    faults: Any = None
    n_jobs: int | None = None
    random_state: Any = None
    verbose: int = 0
    C: float | None = None
    multi_class: str = "ovr"
    topology_seed: int | None = None
    partition_seed: int | None = None
    observers: Any = None
    privacy: DifferentialPrivacy | None = None

    def fit(self, X: Any, y: ArrayLike, sample_weight: ArrayLike | None = None, sites: ArrayLike | None = None) -> Self:
        """Train all nodes.

        Parameters
        ----------
        X : array-like or sparse matrix, rows x features; or a Ray Dataset
        y : array-like
            The labels; the label column's name for a Ray Dataset.
        sample_weight : array-like or None, default None
            The weights of the rows.
        sites : array-like or None, default None
            The label of the node that owns each row. With a networkx graph, sites and nodes are matched by label.
            Otherwise the nodes are the sites in sorted order: the first row of an adjacency matrix is the first site.
            None: rows are assigned evenly at random.

        Returns
        -------
        self : GadgetSVC

        Raises
        ------
        ValueError, TypeError
            A parameter or the data cannot be used; the message names the fix.
        """
        check_parameters(self)
        if is_dataset(X):
            if sample_weight is not None or sites is not None:
                raise ValueError("weights and sites of a Ray Dataset's rows are not supported: leave them out")
            if not isinstance(y, str | None):
                raise TypeError(
                    "X is a Ray Dataset, which has its labels in a column: y must be that column's name, such as "
                    f"'label', got {type(y).__name__}"
                )
            return self._fit_remote(X, label=y)
        rows = validate_rows(self, X, y, sample_weight, reset=True)
        rows.require_two_classes(self.classes_)
        attributes.reset(self)
        shares, self.sites_ = share_rows(
            rows.X, rows.label, attributes.requested_nodes(self), self._partition_seed, rows.times, sites,
            topologies.labels_of(self.topology), by_position=self.privacy is not None,
        )  # fmt: skip
        attributes.connect(self, algorithms.resolve(self.algorithm))
        problem = make_problem(self, rows, shares)
        plan = attributes.make_plan(self, problem, self.max_iter, self.stopping)
        attributes.store(self, fit_network(problem, plan))
        warn_after_fit(self, rows.weighted())
        return self

    def partial_fit(
        self, X: Any, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None,
        sites: ArrayLike | None = None,
    ) -> Self:  # fmt: skip
        """Continue training, for one pass over these rows.

        Parameters
        ----------
        X, y, sample_weight, sites
            As in `fit`.
        classes : array-like or None, default None
            All labels that will ever occur; needed in the first call.

        Returns
        -------
        self : GadgetSVC
        """
        check_parameters(self)
        first = not hasattr(self, "coef_")
        check_batch(self, first, classes)
        rows = validate_rows(self, X, y, sample_weight, reset=first, classes=classes)
        algorithm = algorithms.resolve(self.algorithm).for_batches()
        if first:
            attributes.reset(self)
            self.sites_ = attributes.sites_of_batches(self, None if sites is None else one_per_row(sites, rows.label))
        if first or type(self.algorithm_) is not type(algorithm):  # another one after a fit of all rows at once
            attributes.connect(self, algorithm)
        seed = (self._partition_seed + self.n_iter_) & MAX_SEED
        shares = share_batch(rows.X, rows.label, self.sites_, seed, rows.times, sites)
        one_pass = self.algorithm_.iterations_per_pass(int(shares.sizes.max()))
        problem = make_problem(self, rows, shares)
        plan = attributes.make_plan(self, problem, min(one_pass, self.max_iter), None)
        attributes.store(self, fit_network(problem, plan, self._state))
        return self

    def fit_shards(
        self, shards: Iterable[Any], *, label: str | None = None, positive: str | None = None,
        sites: Sequence[Hashable] | None = None, format: str | None = None,
        on_summary: Callable[[DataSummary], None] | None = None,
    ) -> Self:  # fmt: skip
        """Train from one (X, y) pair, or one data file, per node.

        With engine="ray" the actors read files and URIs (s3://, https://, ...), and no row passes through this process.

        Parameters
        ----------
        shards : sequence of (X, y) pairs or of paths and URIs; or a Ray Dataset
            The rows of a Ray Dataset are split evenly, in order.
        label : str or None, default None
            The label's column in files, by name or number.
        positive : str or None, default None
            The label that becomes +1; all others become -1.
        sites : sequence or None, default None
            The nodes' labels, one per shard; None: 0, 1, ... Nodes come in the sorted order of their labels.
        format : str or None, default None
            The format of files that are read here (svmlight, csv, tsv, parquet or npz); None: by their ending.
        on_summary : callable or None, default None
            Called with the `DataSummary` of the shards before the training starts.

        Returns
        -------
        self : GadgetSVC
        """
        require_list(shards)
        check_parameters(self)
        if is_dataset(shards):
            if sites is not None:
                raise ValueError("a Ray Dataset is split by position: leave sites out")
            return self._fit_remote(shards, label=label, positive=positive, on_summary=on_summary)
        shards, names = name_shards(list(shards), sites, topologies.labels_of(self.topology))
        if self.engine == "ray" and are_places(shards):
            if format is not None:
                raise ValueError(f"format={format!r}: actors know a file's format by its ending: rename the files")
            return self._fit_remote(shards, names=names, label=label, positive=positive, on_summary=on_summary)
        stack = stack_shards(shards, label, format)
        y = binarize_labels(stack.y, positive)
        if on_summary is not None:
            on_summary(stack.summary)
        owners: Any = stack.sites if sites is None else [names[i] for i in stack.sites.tolist()]
        return self.fit(stack.X, y, sites=owners)

    def _fit_remote(self, shards: Any, **options: Any) -> Self:
        """Train from shards that the actors of a cluster read, see `remote_fit`."""
        if self.privacy is not None:
            raise ValueError("privacy is for rows that are given to fit: read the shards here, or use engine='local'")
        from gadget_svm.estimator.remote_fit import fit_remote  # imports what only a cluster needs

        attributes.store(self, fit_remote(self, shards, **options))
        warn_after_fit(self)
        return self

    def decision_function(self, X: Any) -> Floats:
        """Return signed distances (times |w|): one per row for two classes, else one per row and class.

        With multi_class="ovo" the score of a class is its number of votes. The summed distances add less than one half,
        which breaks ties, as in scikit-learn's OneVsOneClassifier.

        Parameters
        ----------
        X : array-like or sparse matrix, rows x features

        Returns
        -------
        scores : ndarray, rows or rows x classes
        """
        scores: Floats = super().decision_function(X)
        if scores.ndim == 1 or self.multi_class_ != "ovo":
            return scores
        votes: Floats = _ovr_decision_function((scores > 0).astype(int), scores, len(self.classes_))
        return votes

    def node(self, site: Hashable) -> "GadgetSVC":
        """Return the model of one node. It predicts, scores and can be saved, but cannot be trained further.

        Parameters
        ----------
        site : hashable
            The node's label, an entry of ``sites_``: a label from ``sites`` or from the networkx graph, or 0, 1, ... if
            there are neither. If no label is a number, an integer is a position in ``sites_``.

        Returns
        -------
        model : GadgetSVC

        Raises
        ------
        IndexError
            There is no such node.
        """
        check_is_fitted(self)
        return attributes.single_node(self, site)

    def set_params(self, **params: Any) -> Self:
        """Set parameters by name; ``algorithm__NAME`` is a parameter of the algorithm, if that is an object."""
        algorithm = params.get("algorithm", self.algorithm)
        if isinstance(algorithm, str):
            for name, value in params.items():
                if name.startswith("algorithm__"):
                    raise ValueError(algorithms.no_parameters(algorithm, name.removeprefix("algorithm__"), value))
        super().set_params(**params)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
