"""Messages and bytes: every protocol counts what it says it sends, however its iterations are run."""

import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm import Gadget, GadgetSVC, build_network
from gadget_svm.algorithms import AveragedSgd, MomDsvm, Pdmm, TwoPushSum
from gadget_svm.estimator.fitting import make_blocks
from gadget_svm.estimator.problem import Problem, share_rows
from gadget_svm.kernels import ThreadTeam
from gadget_svm.simulation.engine import LocalRuntime

NODES, ITERATIONS = 6, 5
NETWORK = build_network("random-regular:4", NODES, seed=1)
EDGES = NETWORK.n_edges
HEAD = 24  # sender, receiver and sequence number
SENT = {  # (algorithm, numbers beside the vector, messages in an iteration or None where coins decide)
    "push-sum": (Gadget(gossip="push-sum"), 1, NODES),  # phi
    "push-sum, three rounds": (Gadget(gossip="push-sum", gossip_rounds=3), 1, 3 * NODES),
    "diffusion": (Gadget(gossip="diffusion"), 1, EDGES),
    "diffusion until still": (Gadget(gossip="diffusion", gossip_rounds="diameter"), 2, None),  # and a flag
    "pairwise": (Gadget(gossip="pairwise"), 0, None),  # unweighted
    "running-sum": (Gadget(gossip="running-sum"), 1, NODES),
    "gadget-2ps": (TwoPushSum(gossip="push-sum", gossip_rounds=1), 1, 2 * NODES),
    "asgd": (AveragedSgd(), 2, NODES),  # and the step size
    "asgd, step size given": (AveragedSgd(eta0=0.1), 1, NODES),
    "pdmm, one neighbour": (Pdmm(), 2, NODES),  # rho and tau
    "pdmm, all neighbours": (Pdmm(neighbours="all"), 2, EDGES),
    "mom-dsvm": (MomDsvm(), 2, EDGES),  # the sum of eta, and the wish for it
}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("blocks", [1, 2], ids=["fused", "by mail"])
@pytest.mark.parametrize("name", SENT)
def test_bytes_are_those_of_the_protocol(toy, name, blocks, classes):
    """On rows with features that occur nowhere, whose zeros are sent too."""
    algorithm, beside, each = SENT[name]
    X, y = sp.hstack([toy.X, sp.csr_matrix((60, 7))], format="csr"), toy.y if classes == 2 else toy.three
    model = GadgetSVC(
        NODES, NETWORK, algorithm=algorithm, lam=0.05, max_iter=ITERATIONS, stopping=None, random_state=0,
        engine_options={"blocks": blocks},
    ).fit(X, y)  # fmt: skip
    last, width = model.history_[-1], (1 if classes == 2 else classes) * 13  # 5 + 7 features, and the constant
    assert last["bytes"] == last["messages"] * (HEAD + 8 * (width + beside))
    assert each is None or last["messages"] == ITERATIONS * each
    assert last["messages"] > 0


@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("labels", ["y", "three"])
def test_a_certificate_counts_omitted_columns_in_its_vectors_alone(toy, blocks, labels):
    """One vector down and one up for every node but the owner; all other messages are short."""
    label, X = getattr(toy, labels).astype(np.int32), sp.csr_matrix(toy.X)
    outputs = 1 if labels == "y" else 3
    shares, names = share_rows(X, label, NODES, 0, None, None)
    problem = Problem(X, label, None, shares, names, outputs)
    run = Pdmm().bind(NETWORK, 0.05, 1.0)
    runtime = LocalRuntime(
        run, make_blocks(problem, NETWORK, 0, blocks, ThreadTeam()), lam=0.05, omitted_columns=7 * outputs
    )
    runtime.advance(3)
    before = runtime.nbytes
    certificate = runtime.certify()
    assert certificate.vectors == 2 * (NODES - 1) < certificate.messages
    assert runtime.nbytes - before == certificate.nbytes + 8 * 7 * outputs * 2 * (NODES - 1)
    whole = outputs * 5  # the model; sums have four numbers an output and three more; the bound two and two
    sums, bound = whole + 4 * outputs + 3, 2 * outputs + 2
    heads = certificate.messages * (HEAD + 16)
    assert certificate.nbytes == heads + 8 * (NODES - 1) * (whole + sums + bound)
