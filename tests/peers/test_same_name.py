"""Two processes with one certificate that cannot dial each other: both are degraded, and say why."""

import random

import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm.peers.events import Saved, Started
from gadget_svm.peers.membership.member import Member
from gadget_svm.peers.neighbourhood import NAME_CONFLICT_S
from gadget_svm.peers.node import Node
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.training.site import Site
from gadget_svm.study.study import Study


@pytest.fixture
def node():
    site = Site(sp.csr_matrix(np.eye(4)), np.array([0, 1, 0, 1], dtype=np.int32), (-1.0, 1.0))
    node = Node(NodeSettings("north", "a:1"), Study("test", 0.1, 4, (-1.0, 1.0)), site, random.Random(0))
    node.handle(Started(0.0), 0.0)
    node.handle(Saved(1), 0.0)
    return node


def hear_of_another(node, since):
    """Others say that a process with this name and address has a higher incarnation; the node outbids it."""
    before = node.incarnation
    node.neighbourhood.detector.hear(Member("north", "a:1", before + 1, 1), direct=False)
    for second in range(since, since + 20):
        node.neighbourhood.beat(float(second))
    assert node.incarnation == before + 2


def test_a_peer_that_is_outbid_again_and_again_is_degraded(node):
    hear_of_another(node, 0)
    assert node.status(20.0)["state"] != "degraded"  # it may be an earlier life of this peer
    hear_of_another(node, 20)
    status = node.status(40.0)
    assert status["state"] == "degraded"
    assert "another process runs as 'north'" in status["why"][0]
    assert "Stop one" in status["why"][0]


def test_the_issue_is_closed_when_no_more_is_heard_of_the_other_process(node):
    hear_of_another(node, 0)
    hear_of_another(node, 20)
    node.neighbourhood.beat(40.0 + NAME_CONFLICT_S)
    assert "name" not in node.status(40.0)["issues"]
