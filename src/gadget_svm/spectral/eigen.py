"""How fast B forgets where mass came from: its stationary shares, second eigenvalue and contraction."""

import math
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

from gadget_svm.core.network import Network, Sparse
from gadget_svm.core.transitions import DOUBLY_STOCHASTIC
from gadget_svm.core.types import Floats
from gadget_svm.spectral.connectivity import TooLargeError, check_connected, period, swept_bound

EIGEN_LIMIT = 100_000
DENSE = 300  # below this a dense eigensolver is quicker, and never fails to converge
THIN = 200  # a wider diameter means a tiny gap, and separators small enough for a sparse LU
SHIFT = 1e-12  # keeps 1 - B invertible; far below the gap of any graph of EIGEN_LIMIT nodes


def stationary(network: Network) -> Floats:
    """pi, the share of all mass that each node holds in the end: pi B = pi."""
    if network.reversible:
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
    """beta, the second-largest eigenvalue modulus of B; `TooLargeError` above 100,000 nodes."""
    if network.reversible:
        return contraction(network)
    if _trivial(network) or period(network) > 1:
        return float(network.n > 1)
    if network.n > DENSE:
        return _largest_modulus(network)
    S, root = _symmetrised(network)
    return float(np.abs(np.linalg.eigvals(S.toarray() - np.outer(root, root))).max())


def contraction(network: Network) -> float:
    """How much a round shrinks what is not mixed: the second singular value of D^1/2 B D^-1/2, D = diag(pi).

    For reversible B it is beta; for any other it is at least beta, and
    unlike beta it bounds the error after every round, not only in the long run (Fill 1991).
    """
    if _trivial(network) or _splits(network):
        return float(network.n > 1)
    S, root = _symmetrised(network)
    if network.n <= DENSE:
        return float(np.linalg.norm(S.toarray() - np.outer(root, root), 2))
    beta_squared = None if swept_bound(network) > THIN else _lanczos(lambda x: S.T @ (S @ x), root)
    if beta_squared is None:  # a tiny gap: there the inverse has a large one
        found = _lanczos(_inverse(S, symmetric=network.reversible), root)
        if found is None:
            raise TooLargeError(_crowded(network))
        beta_squared = (1 + SHIFT) ** 2 - 1 / found
    return math.sqrt(beta_squared)


def _crowded(network: Network) -> str:
    return (
        f"the eigenvalues of {network.name!r} crowd too closely to be told apart at {network.n:,} nodes: "
        "give the number of rounds, or measure a smaller network of the same kind"
    )


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
        raise TooLargeError(
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
    """The second-largest eigenvalue modulus of a B that is not reversible."""
    from scipy.sparse.linalg import ArpackNoConvergence, eigs

    S, root = _symmetrised(network)
    thin = swept_bound(network) > THIN  # then the large moduli crowd around 1, where the inverse spreads them
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
        raise TooLargeError(_crowded(network)) from error
    return float(np.abs(1 + SHIFT - 1 / found if thin else found).max())
