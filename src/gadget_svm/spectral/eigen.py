"""How fast B mixes: its stationary distribution, second eigenvalue and contraction."""

import math
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.network import Network, Sparse
from gadget_svm.core.transitions import DOUBLY_STOCHASTIC
from gadget_svm.core.types import Floats
from gadget_svm.spectral.graph import TooLargeError, check_connected, period, swept_bound

EIGEN_MAX_NODES = 100_000
DENSE_MAX_NODES = 300  # up to this a dense eigensolver is faster, and never fails to converge
THIN_MIN_DIAMETER = 200  # above this the gap is tiny, and separators are small enough for a sparse LU
ALTERNATIVE = "give the number of rounds, or measure a smaller network of the same kind"
TOO_CLOSE = f"the largest eigenvalues of {{!r}} are too close to separate at {{:,}} nodes: {ALTERNATIVE}"
SHIFT = 1e-12  # keeps 1 - B invertible; far below the gap of any graph of EIGEN_MAX_NODES nodes


def stationary(network: Network) -> Floats:
    """Return pi, the share of all mass that each node holds in the limit: pi B = pi."""
    if network.reversible:
        if network.transition in DOUBLY_STOCHASTIC or network.n == 1:
            return np.full(network.n, 1.0 / network.n)
        return np.asarray(network.degree / network.n_edges, dtype=np.float64)
    check_connected(network)
    return _power(sp.csr_array(network.matrix().T))


def _power(turned: sp.csr_array) -> Floats:
    """Return the fixed vector of B.T by averaged power iteration, or by inverse iteration if that is too slow."""
    pi = np.full(turned.shape[0], 1.0 / turned.shape[0])
    before = math.inf
    for _ in range(2000):
        step = (turned @ pi - pi) / 2  # half a step: converges for a periodic B as well
        pi, moved = pi + step, float(np.abs(step).sum())
        if moved < 1e-15 or (moved < before and moved / (1 - moved / before) < 1e-13):
            break
        before = moved
    else:
        solve = _factor(sp.eye_array(len(pi)) * (1 + SHIFT) - turned)
        pi = np.abs(solve(solve(pi)))
    return np.asarray(pi / pi.sum(), dtype=np.float64)


def second_eigenvalue(network: Network) -> float:
    """Return beta, the second-largest eigenvalue modulus of B; raises `TooLargeError` above 100,000 nodes."""
    if network.reversible:
        return contraction(network)
    if _trivial(network) or period(network) > 1:
        return float(network.n > 1)
    if network.n > DENSE_MAX_NODES:
        return _largest_modulus(network)
    S, root = _symmetrised(network)
    return float(np.abs(np.linalg.eigvals(S.toarray() - np.outer(root, root))).max())


def contraction(network: Network) -> float:
    """Return the factor by which a round reduces the error: the second singular value of D^1/2 B D^-1/2, D = diag(pi).

    It is beta for a reversible B, and at least beta for any other. Unlike beta it bounds the error after every round,
    not only in the limit (Fill 1991).
    """
    if _trivial(network) or _splits(network):
        return float(network.n > 1)
    S, root = _symmetrised(network)
    if network.n <= DENSE_MAX_NODES:
        return float(np.linalg.norm(S.toarray() - np.outer(root, root), 2))
    beta_squared = None if swept_bound(network) > THIN_MIN_DIAMETER else _lanczos(lambda x: S.T @ (S @ x), root)
    if beta_squared is None:  # a tiny gap; the inverse has a large one
        found = _lanczos(_inverse(S, symmetric=network.reversible), root)
        if found is None:
            raise TooLargeError(TOO_CLOSE.format(network.name, network.n))
        beta_squared = (1 + SHIFT) ** 2 - 1 / found
    return math.sqrt(beta_squared)


def _splits(network: Network) -> bool:
    """Return whether some senders share no receiver with the rest, so that a round moves mass without mixing it.

    In this case the contraction is exactly 1, which rounding would hide. An undirected network splits if it is
    bipartite.
    """
    if np.all(network.self_share > 0):
        return False
    B = network.matrix()
    cover: Sparse = sp.block_array([[None, B], [B.T, None]], format="csr")
    return int(sp.csgraph.connected_components(cover, directed=False)[0]) > 1


def spectral_gap(network: Network) -> float:
    """Return 1 - beta."""
    return 1.0 - second_eigenvalue(network)


def tau_mix(network: Network) -> float:
    """Return the paper's mixing time 1 / (1 - beta); infinite on a periodic network."""
    gap = spectral_gap(network)
    return 1.0 / gap if gap > 0 else math.inf


def _trivial(network: Network) -> bool:
    """Return whether there is only one node. Raises ValueError if the network is too large or not connected."""
    if network.n > EIGEN_MAX_NODES:
        limit = f"eigenvalues are computed up to {EIGEN_MAX_NODES:,} nodes and {network.name!r} has {network.n:,}"
        raise TooLargeError(f"{limit}: {ALTERNATIVE}")
    check_connected(network)
    return network.n == 1


def _symmetrised(network: Network) -> tuple[sp.csr_array, Floats]:
    """Return D^1/2 B D^-1/2, symmetric if B is reversible, and sqrt(pi), its fixed vector from both sides."""
    root = np.sqrt(stationary(network))
    return sp.csr_array(sp.diags_array(root) @ network.matrix() @ sp.diags_array(1 / root)), root


Apply = Callable[[Floats], Floats]


def _deflated(apply: Apply, root: Floats) -> "tuple[sp.linalg.LinearOperator, Floats]":
    """Return the operator with its known eigenvector projected out, and a start vector: ARPACK's own is random."""

    def matvec(x: Floats) -> Floats:
        y = apply(x - root * (root @ x))
        return np.asarray(y - root * (root @ y), dtype=np.float64)

    operator = sp.linalg.LinearOperator((len(root), len(root)), matvec=matvec, dtype=np.float64)
    return operator, np.random.default_rng(0).standard_normal(len(root))


def _lanczos(apply: Apply, root: Floats) -> float | None:
    """Return the largest eigenvalue, besides the known one, of a positive operator; None without convergence."""
    matrix, v0 = _deflated(apply, root)
    try:
        found = sp.linalg.eigsh(matrix, k=1, v0=v0, ncv=60, maxiter=40, tol=1e-11, return_eigenvectors=False)
    except sp.linalg.ArpackNoConvergence:
        return None
    return max(float(found[0]), 0.0)


def _inverse(S: sp.csr_array, symmetric: bool) -> Apply:
    """Return x -> ((1 + SHIFT)^2 - S'S)^-1 x; for symmetric S by its two factors, which are as sparse as the graph."""
    one = sp.eye_array(S.shape[0]) * (1 + SHIFT)
    if not symmetric:
        return _factor(one * (1 + SHIFT) - S.T @ S)
    minus, plus = _factor(one - S), _factor(one + S)
    return lambda x: minus(plus(x))


def _factor(A: sp.sparray) -> Apply:
    return sp.linalg.splu(sp.csc_array(A), permc_spec="MMD_AT_PLUS_A").solve


def _largest_modulus(network: Network) -> float:
    """Return the second-largest eigenvalue modulus of a B that is not reversible."""
    S, root = _symmetrised(network)
    thin = swept_bound(network) > THIN_MIN_DIAMETER  # large moduli are close to 1: use the inverse
    apply = _factor(sp.eye_array(network.n) * (1 + SHIFT) - S) if thin else lambda x: S @ x
    matrix, v0 = _deflated(apply, root)
    try:
        wanted, steps = 4 if thin else 2, max(10, 1_000_000 // network.n)  # steps for about ten seconds
        found = sp.linalg.eigs(matrix, wanted, v0=v0, ncv=80, maxiter=steps, tol=1e-7, return_eigenvectors=False)
    except sp.linalg.ArpackNoConvergence as error:
        raise TooLargeError(TOO_CLOSE.format(network.name, network.n)) from error
    return float(np.abs(1 + SHIFT - 1 / found if thin else found).max())
