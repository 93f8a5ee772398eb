"""The interface of algorithms: `BaseAlgorithm` holds the parameters, `BaseRun` is an algorithm bound to a network.

All capabilities of an algorithm are declared here; the optional ones have defaults. No code probes for them.
"""

import numbers
from inspect import Parameter, signature
from typing import Any, ClassVar, Self

from gadget_svm import spectral
from gadget_svm.core.block import Block
from gadget_svm.core.lookup import unknown
from gadget_svm.core.network import Network
from gadget_svm.core.types import Flags, Floats, Ints
from gadget_svm.gossip import Round
from gadget_svm.privacy import DifferentialPrivacy


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def checked_count(value: Any, name: str, least: int = 1) -> int:
    """Return a whole number of at least ``least``, or raise ValueError."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}")
    return int(value)


def checked_positive(value: Any, name: str, alternative: str = "") -> float:
    """Return a positive finite number, or raise ValueError; ``alternative`` says what else is allowed or meant."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < float(value) < float("inf"):
        raise ValueError(f"{name} must be a positive number{alternative}, got {value!r}")
    return float(value)


def positive_or_auto(value: Any, name: str) -> float | None:
    """Return a positive finite number, or None for "auto". Raise ValueError for anything else."""
    return None if isinstance(value, str) and value == "auto" else checked_positive(value, name, " or 'auto'")


class BaseRun:
    """The base class of runs: no fused iterations, no certificates, and any fault is allowed.

    A subclass declares ``average`` (whether models are averages of iterates) and writes `iteration`, a generator. The
    generator changes ``block.w``, yields the messages of the block's nodes (`gossip.make_messages`, or a protocol's
    ``round``), and receives a `Delivery` for each. It adds 1 to ``block.iterates``; with ``average``, it adds each
    iterate to ``block.w_sum``. Other state of nodes and edges belongs in ``block.edge``, as arrays.
    """

    average: bool
    certifiable: ClassVar[bool] = False
    """Whether the run keeps a feasible point of the dual, so that `duals` and `counted` may be called."""

    @property
    def gossip_name(self) -> str:
        """The gossip protocol, or how messages travel: "push", "broadcast"."""
        return "broadcast"

    @property
    def refuses_faults(self) -> str:
        """Why the run cannot be combined with faults, and the fix; empty if it can."""
        return ""

    @property
    def loses_mass(self) -> bool:
        """Whether a lost message takes a part of the gossip protocol's mass with it."""
        return False

    def weights(self, block: Block) -> Floats:
        """Return every node's last iterate, nodes x outputs x features."""
        return block.w

    def iteration(self, block: Block, t: int) -> Round:
        """Do one iteration of a block's nodes: yield messages, receive deliveries. Every subclass overrides it."""
        raise NotImplementedError(f"{type(self).__name__} needs a method iteration(block, t), a generator")

    def supports_fused(self, block: Block) -> bool:  # noqa: ARG002
        """Return whether `advance_fused` may replace `iteration`."""
        return False

    def advance_fused(self, block: Block, count: int) -> tuple[int, int]:
        """Do several iterations of a block that holds all nodes; return the number of messages sent and their bytes."""
        raise NotImplementedError(f"{type(self).__name__} has no fused iterations: call `iteration`")

    def drop(self, block: Block, node: int, other: int) -> None:
        """Drop the edge of ``node`` to the lost node ``other``. Do nothing if edges have no state."""

    def set_neighbours(self, block: Block, neighbours: Ints) -> None:
        """Replace the neighbours of a block of one node, made with `Links.alone`, between two iterations."""
        raise NotImplementedError(f"{type(self).__name__} cannot change neighbours during a run: use PDMM")

    def reset_edge(self, block: Block, other: int) -> None:
        """Note that a neighbour restarted: it counts its messages from the beginning, and may have lost its state."""
        raise NotImplementedError(f"{type(self).__name__} cannot continue after a neighbour restarts: use PDMM")

    def counted(self, block: Block) -> Flags:
        """Return, per end of an edge, whether the node there belongs to the network even while it is away."""
        raise NotImplementedError(f"{type(self).__name__} keeps no dual variables: set stopping to another rule")

    def duals(self, block: Block) -> Floats:
        """Return alpha, outputs x rows, in [0, c_r] for f_i(w) = n_i lam/2 |w|^2 + sum_r c_r hinge_r(w)."""
        raise NotImplementedError(f"{type(self).__name__} keeps no dual variables: set stopping to another rule")


Run = BaseRun
"""An algorithm with every parameter resolved for one network, as a runtime drives it."""


def models(run: Run, block: Block) -> Floats:
    """Return every node's model: the average of its iterates, or the last one."""
    return block.averages() if run.average else run.weights(block)


class BaseAlgorithm:
    """The base class of algorithms: parameters as scikit-learn expects them, and defaults for what is optional.

    A subclass has an ``__init__`` that only stores its parameters, and `bind`. Pass an instance to `GadgetSVC`, or name
    the class through an entry point of the group "gadget_svm.algorithms".

    Attributes
    ----------
    average : bool, default True
        Whether models are averages of iterates.
    certifies : bool, default False
        Whether its runs are certifiable.
    omits_unused_columns : bool, default False
        Whether features that occur in no row may be left out because they change no bit of the result.
    transition : str or None, default None
        The matrix B on the graph, for algorithms that use one: "lazy", "random-walk", "metropolis" or "max-degree".

    Examples
    --------
    Every node keeps its vector and gossips it once per iteration; a real algorithm also learns from its rows.

    >>> from gadget_svm import GadgetSVC, gossip
    >>> from gadget_svm.algorithms import BaseAlgorithm, BaseRun
    >>> class Mixing(BaseAlgorithm):
    ...     average = False
    ...     def bind(self, network, lam, radius, lossy=False, sizes=None):
    ...         return MixingRun()
    >>> class MixingRun(BaseRun):
    ...     average = False
    ...     def iteration(self, block, t):
    ...         protocol = gossip.PushSum()
    ...         protocol.load_vectors(block, persist=False)
    ...         yield from protocol.round(block, t, block.exchanges)
    ...         gossip.estimate(block)
    >>> model = GadgetSVC(3, algorithm=Mixing(), max_iter=2, stopping=None, random_state=0)
    >>> model.fit([[-1.0], [1.0]] * 6, [0, 1] * 6).node_coef_.shape
    (3, 1)
    """

    average: bool = True
    certifies: bool = False
    omits_unused_columns: bool = False
    transition: str | None = None

    def for_network(self, network: Network) -> "BaseAlgorithm":  # noqa: ARG002
        """Return the algorithm to use on this network: itself, unless it chooses among other algorithms."""
        return self

    def with_privacy(self, privacy: DifferentialPrivacy) -> "BaseAlgorithm":  # noqa: ARG002
        """Return the algorithm with a privacy budget."""
        raise ValueError(
            f"{type(self).__name__} sends exact functions of rows, from which neighbours can learn rows, and cannot "
            "keep a privacy budget: use algorithm='auto', which is private gradient descent if there is a budget"
        )

    def for_batches(self) -> "BaseAlgorithm":
        """Return the algorithm to use in `partial_fit`: itself, unless it chooses among other algorithms."""
        return self

    def bind(
        self, network: Network, lam: float, radius: float, lossy: bool = False, sizes: Floats | None = None
    ) -> Run:
        """Return the algorithm on this network, for shards of these sizes; ``lossy`` says that messages may be lost."""
        raise NotImplementedError(f"{type(self).__name__} needs a method bind that returns a Run")

    def iterations_per_pass(self, rows: int) -> int:  # noqa: ARG002
        """Return after how many iterations a node has used each of its ``rows`` about once."""
        return 1

    def with_transition_of(self, network: Network) -> Network:
        """Return the network with the matrix B of ``transition``. If the algorithm uses no B, return it unchanged."""
        return network if self.transition is None else network.with_transition(self.transition)

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        if cls.__init__ is object.__init__:
            return {}
        parameters = list(signature(cls.__init__).parameters.values())[1:]
        return {each.name: each.default for each in parameters if each.kind is not Parameter.VAR_KEYWORD}

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - no parameter has parameters
        """Return every parameter by name."""
        return {name: getattr(self, name) for name in sorted(self._defaults())}

    def set_params(self, **params: Any) -> Self:
        """Set some parameters.

        Raises
        ------
        ValueError
            If a name is unknown. Then no parameter is changed.
        """
        known = self._defaults()
        for name in params:
            if name not in known:
                raise ValueError(unknown(f"parameter of {type(self).__name__}", name, known))
        for name, value in params.items():
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        known = self._defaults()
        shown = (f"{name}={getattr(self, name)!r}" for name in known if not _same(getattr(self, name), known[name]))
        return f"{type(self).__name__}({', '.join(shown)})"


Algorithm = BaseAlgorithm
"""Parameters, which `bind` checks against a network and resolves to a `Run`."""


def check_undirected(network: Network, name: str) -> None:
    """Raise ValueError if an algorithm that needs both directions of every edge cannot run on the network."""
    if network.directed:
        raise ValueError(
            f"{name} needs messages in both directions of an edge, and {network.name!r} is directed: "
            "use an undirected topology such as 'random-regular', or algorithm='gadget'"
        )
    network.refuse_matrix(name)
    spectral.check_connected(network)
