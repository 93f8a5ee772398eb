"""How well a network mixes: connectivity, period, diameter, eigenvalues, and the rounds Push-Sum needs.

Owns every number that a graph alone decides and refuses those it cannot afford (`TooLarge`).
"""

import math
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from gadget_svm.network import DOUBLY_STOCHASTIC, Floats, Network, Sparse, flooding_rounds, hops

EIGEN_LIMIT = 100_000
DIAMETER_LIMIT = 4_000
DENSE = 300  # below this a dense eigensolver is quicker, and never fails to converge
THIN = 200  # a wider diameter means a tiny gap, and separators small enough for a sparse LU
SHIFT = 1e-12  # keeps 1 - B invertible; far below the gap of any graph of EIGEN_LIMIT nodes
RANDOMISED_FACTOR = 2.0
"""Rounds of randomised Push-Sum per round of the diffusion bound, measured: at most 1.98 (8 complete nodes)
over 11 topologies of 8 to 512 nodes and gamma 0.1 to 0.0001; stars need more, see `randomised_rounds`."""


class TooLarge(ValueError):  # noqa: N818 - the name is the whole complaint
    """The network is too large for this number; the sentence says what there is instead."""


def check_connected(network: Network) -> None:
    """Refuse a graph in which some node never hears of another (strongly connected, if directed)."""
    count, label = network.components()
    if count == 1:
        return
    sizes = np.bincount(label)
    hub = int(np.argmax(label == np.argmax(sizes)))
    cut = np.flatnonzero(label == (len(sizes) - 1 - np.argmin(sizes[::-1])))
    others = f" (and {len(cut) - 1} more: {', '.join(map(str, cut[1:4]))}{', ...' * (len(cut) > 4)})"
    node = f"node {cut[0]}{others if len(cut) > 1 else ''}"
    heard = network.directed and network.hops(hub)[cut[0]] >= 0
    fault = f"{node} cannot reach node {hub}" if heard else f"{node} cannot be reached from node {hub}"
    largest = ", ".join(map(str, np.sort(sizes)[::-1][:5])) + (", ..." if count > 5 else "")
    strongly = "strongly " if network.directed else ""
    raise ValueError(
        f"the network {network.name!r} is not {strongly}connected: {fault}; its {count} components have "
        f"{largest} nodes. Add an edge between them or choose a connected topology such as 'ring'."
    )


def period(network: Network) -> int:
    """The greatest common divisor of the cycle lengths of B's support, for a connected graph."""
    if np.any(network.self_share > 0):
        return 1
    depth = network.hops(0)
    # An edge u -> v closes cycles whose lengths differ by a multiple of depth[u] + 1 - depth[v].
    return int(np.gcd.reduce(depth[network.sources] + 1 - depth[network.indices]))


def check_diffusion(network: Network) -> None:
    """Refuse a network on which the diffusion form of Push-Sum does not converge."""
    check_connected(network)
    p = period(network)
    if p > 1:
        kind = " (it is bipartite: mass swings between two halves)" if p == 2 else ""
        raise ValueError(
            f"the network {network.name!r} has period {p}{kind}, so diffusion with transition "
            f"{network.transition!r} never settles: use transition='lazy', which keeps half at each node"
        )


def stationary(network: Network) -> Floats:
    """pi, the share of all mass that each node holds in the end: pi B = pi."""
    if not network.directed:
        if network.transition in DOUBLY_STOCHASTIC or network.n == 1:
            return np.full(network.n, 1.0 / network.n)
        return np.asarray(network.degree / network.n_edges, dtype=np.float64)
    check_connected(network)
    return _power(sp.csr_array(network.matrix().T))


def _power(turned: sp.csr_array) -> Floats:
    """The fixed vector of B.T by averaged power iteration, by inverse iteration where that is too slow."""
    pi = np.full(turned.shape[0], 1.0 / turned.shape[0])
    before = math.inf
    for _ in range(2000):
        step = (turned @ pi - pi) / 2  # half a step, so that a period does no harm
        pi, moved = pi + step, float(np.abs(step).sum())
        if moved < 1e-15 or (moved < before and moved / (1 - moved / before) < 1e-13):
            break
        before = moved
    else:
        solve = _factor(sp.eye_array(len(pi)) * (1 + SHIFT) - turned)
        pi = np.abs(solve(solve(pi)))
    return np.asarray(pi / pi.sum(), dtype=np.float64)


def second_eigenvalue(network: Network) -> float:
    """beta, the second-largest eigenvalue modulus of B; `TooLarge` above 100,000 nodes."""
    if not network.directed:
        return contraction(network)
    if _trivial(network) or period(network) > 1:
        return float(network.n > 1)
    if network.n > DENSE:
        return _largest_modulus(network)
    S, root = _symmetrised(network)
    return float(np.abs(np.linalg.eigvals(S.toarray() - np.outer(root, root))).max())


def contraction(network: Network) -> float:
    """How much a round shrinks what is not mixed: the second singular value of D^1/2 B D^-1/2, D = diag(pi).

    For reversible B (every undirected network here) it is beta; for directed B it is at least beta, and
    unlike beta it bounds the error after every round, not only in the long run (Fill 1991).
    """
    if _trivial(network) or _splits(network):
        return float(network.n > 1)
    S, root = _symmetrised(network)
    if network.n <= DENSE:
        return float(np.linalg.norm(S.toarray() - np.outer(root, root), 2))
    beta_squared = None if _swept_bound(network) > THIN else _lanczos(lambda x: S.T @ (S @ x), root)
    if beta_squared is None:  # a tiny gap: there the inverse has a large one
        found = _lanczos(_inverse(S, symmetric=not network.directed), root)
        beta_squared = 0.0 if found is None else (1 + SHIFT) ** 2 - 1 / found
    return math.sqrt(beta_squared)


def _splits(network: Network) -> bool:
    """Whether some senders share no receiver with the rest, so that a round moves mass without mixing it.

    Exactly then contraction is 1; rounding would hide it. An undirected network splits if it is bipartite.
    """
    if np.all(network.self_share > 0):
        return False
    from scipy.sparse.csgraph import connected_components

    B = network.matrix()
    cover: Sparse = sp.block_array([[None, B], [B.T, None]], format="csr")
    return int(connected_components(cover, directed=False)[0]) > 1


def spectral_gap(network: Network) -> float:
    """1 - beta."""
    return 1.0 - second_eigenvalue(network)


def tau_mix(network: Network) -> float:
    """The paper's mixing time 1 / (1 - beta); infinite on a periodic network."""
    gap = spectral_gap(network)
    return 1.0 / gap if gap > 0 else math.inf


def _trivial(network: Network) -> bool:
    """Whether one node leaves nothing to mix; refuses what is too large or not connected."""
    if network.n > EIGEN_LIMIT:
        raise TooLarge(
            f"eigenvalues are not computed above {EIGEN_LIMIT:,} nodes and {network.name!r} has "
            f"{network.n:,}: give the number of rounds, or measure a smaller network of the same kind"
        )
    check_connected(network)
    return network.n == 1


def _symmetrised(network: Network) -> tuple[sp.csr_array, Floats]:
    """D^1/2 B D^-1/2, symmetric if B is reversible, and sqrt(pi), its fixed vector from both sides."""
    root = np.sqrt(stationary(network))
    return sp.csr_array(sp.diags_array(root) @ network.matrix() @ sp.diags_array(1 / root)), root


Apply = Callable[[Floats], Floats]


def _deflated(apply: Apply, root: Floats) -> "sp.linalg.LinearOperator":
    """The operator without its known eigenvector, which is projected out before and after."""
    from scipy.sparse.linalg import LinearOperator

    def matvec(x: Floats) -> Floats:
        y = apply(x - root * (root @ x))
        return np.asarray(y - root * (root @ y), dtype=np.float64)

    return LinearOperator((len(root), len(root)), matvec=matvec, dtype=np.float64)


def _lanczos(apply: Apply, root: Floats) -> float | None:
    """The largest eigenvalue, beside the known one, of a positive operator; None if it does not converge."""
    from scipy.sparse.linalg import ArpackNoConvergence, eigsh

    matrix, v0 = _deflated(apply, root), _start(len(root))
    try:
        found = eigsh(matrix, k=1, v0=v0, ncv=60, maxiter=40, tol=1e-11, return_eigenvectors=False)
    except ArpackNoConvergence:
        return None
    return max(float(found[0]), 0.0)


def _start(n: int) -> Floats:
    """A start for ARPACK, whose own differs from run to run."""
    return np.random.default_rng(0).standard_normal(n)


def _inverse(S: sp.csr_array, symmetric: bool) -> Apply:
    """x -> ((1 + SHIFT)^2 - S'S)^-1 x; for symmetric S by its two factors, as sparse as the graph."""
    one = sp.eye_array(S.shape[0]) * (1 + SHIFT)
    if not symmetric:
        return _factor(one * (1 + SHIFT) - S.T @ S)
    minus, plus = _factor(one - S), _factor(one + S)
    return lambda x: minus(plus(x))


def _factor(A: sp.sparray) -> Apply:
    from scipy.sparse.linalg import splu

    solve: Apply = splu(sp.csc_array(A), permc_spec="MMD_AT_PLUS_A").solve
    return solve


def _largest_modulus(network: Network) -> float:
    """The second-largest eigenvalue modulus of a directed network's B."""
    from scipy.sparse.linalg import ArpackNoConvergence, eigs

    S, root = _symmetrised(network)
    thin = _swept_bound(network) > THIN  # then the large moduli crowd around 1, where the inverse spreads them
    apply = _factor(sp.eye_array(network.n) * (1 + SHIFT) - S) if thin else lambda x: S @ x
    matrix, v0 = _deflated(apply, root), _start(network.n)
    try:
        found = eigs(
            matrix,
            k=4 if thin else 2,
            v0=v0,
            ncv=80,
            maxiter=max(10, 1_000_000 // network.n),  # about ten seconds at any size
            tol=1e-7,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence as error:
        raise TooLarge(
            f"the eigenvalues of {network.name!r} crowd too closely to be told apart at {network.n:,} nodes: "
            "use spectral.contraction, or a smaller network of the same kind"
        ) from error
    return float(np.abs(1 + SHIFT - 1 / found if thin else found).max())


def diameter(network: Network) -> int:
    """The longest of all shortest paths, exactly; `TooLarge` above 4,000 nodes."""
    if network.n > DIAMETER_LIMIT:
        raise TooLarge(
            f"the exact diameter is computed up to {DIAMETER_LIMIT:,} nodes and {network.name!r} has "
            f"{network.n:,}: use diameter_bound"
        )
    check_connected(network)
    if _swept_bound(network) <= 64:
        return flooding_rounds(network)
    graph = network.adjacency()
    graph.indices, graph.indptr = graph.indices.astype(np.int32), graph.indptr.astype(np.int32)
    return max(int(hops(graph, source).max()) for source in range(network.n))


def diameter_bound(network: Network) -> int:
    """The diameter up to 4,000 nodes; above, a bound of it: out and back through one well-placed node."""
    if network.n <= DIAMETER_LIMIT:
        return diameter(network)
    check_connected(network)
    return _swept_bound(network)


def _swept_bound(network: Network) -> int:
    if network.directed:
        return int(network.hops(0).max() + network.hops(0, backward=True).max())
    # Two sweeps find a long path; from its middle nothing is much further than half the diameter.
    end = int(network.hops(0).argmax())
    near = network.hops(end)
    far = network.hops(int(near.argmax()))
    middle = int(np.argmin(np.maximum(near, far)))
    return 2 * int(network.hops(middle).max())


def push_sum_error_factor(network: Network, t: int) -> float:
    """2 eps/(1 - eps) with eps = contraction^t / min pi; infinite while eps >= 1.

    Proved, for every x, every weights n_j >= 0 with sum N > 0, and every connected network: after t rounds of
    diffusion from s_j = n_j x_j, phi_j = n_j, the estimate of each node i obeys

        |s_i/phi_i - mean| <= 2 eps/(1 - eps) * sum_j n_j |x_j| / N,        mean = sum_j n_j x_j / N.

    (B^t)_ji = pi_i (1 + e_ji) with |e_ji| <= contraction^t / sqrt(pi_i pi_j) <= eps. Let E0 = sum_j n_j e_ji
    and E1 = sum_j n_j x_j e_ji: the error is (E1 - mean E0) / (N + E0), with |E0| <= eps N and
    |E1| <= eps sum_j n_j |x_j|. So the factor is the same for all weights; x may be a vector in any norm.
    """
    if t < 0:
        raise ValueError(f"t counts rounds and cannot be {t}")
    return _error_factor(contraction(network), float(stationary(network).min()), t)


def rounds_to(network: Network, gamma: float = 0.01) -> int:
    """The rounds of diffusion after which `push_sum_error_factor` is at most ``gamma``."""
    if not gamma > 0:
        raise ValueError(f"gamma is a relative error above 0, not {gamma}: 0.01 means one per cent")
    check_diffusion(network)
    beta, pi_min = contraction(network), float(stationary(network).min())
    if beta >= 1:
        raise ValueError(
            f"there is no bound on the rounds of {network.name!r} with transition {network.transition!r}: "
            "use transition='lazy'"
        )
    if pi_min == 1.0:
        return 0
    t = 1 if beta == 0 else max(1, math.ceil(math.log(pi_min * gamma / (2 + gamma)) / math.log(beta)))
    while _error_factor(beta, pi_min, t) > gamma:  # the logarithms may round to one round too few
        t += 1
    return t


def randomised_rounds(network: Network, gamma: float = 0.01) -> int:
    """The rounds the randomised form needs, by measurement and not by proof.

    It is `RANDOMISED_FACTOR` times `rounds_to`, unless some node is rarely drawn: on a star a leaf waits
    for one push in n - 1, however fast diffusion mixes, so all are first given time to be drawn (99 %).
    """
    rounds = rounds_to(network, gamma)
    if network.n == 1:
        return rounds
    chance = network.share / (1 - network.self_share[network.sources])
    drawn = np.bincount(network.indices, chance, network.n)
    waiting = math.log(100 * network.n) / float(drawn.min())
    return math.ceil(max(RANDOMISED_FACTOR * rounds, waiting))


def _error_factor(beta: float, pi_min: float, t: int) -> float:
    eps = beta**t / pi_min if pi_min < 1 else 0.0
    return 2 * eps / (1 - eps) if eps < 1 else math.inf


def summary(network: Network, gamma: float = 0.01) -> dict[str, object]:
    """What ``gadget topology`` prints; a number too costly, or without meaning here, is None."""
    connected = network.components()[0] == 1
    return {
        "nodes": network.n,
        "edges": network.n_edges if network.directed else network.n_edges // 2,
        "directed": network.directed,
        "transition": network.transition,
        "degree_min": int(network.degree.min()),
        "degree_mean": network.n_edges / network.n,
        "degree_max": int(network.degree.max()),
        "connected": connected,
        "period": period(network) if connected else None,
        "diameter": diameter_bound(network) if connected else None,
        "diameter_exact": network.n <= DIAMETER_LIMIT,
        "spectral_gap": _or_none(spectral_gap, network),
        "tau_mix": _or_none(tau_mix, network),
        "rounds_diffusion": _or_none(rounds_to, network, gamma),
        "rounds_randomised": _or_none(randomised_rounds, network, gamma),
    }


def _or_none(measure: Callable[..., float], network: Network, *arguments: float) -> float | None:
    try:
        return measure(network, *arguments)
    except ValueError:
        return None
