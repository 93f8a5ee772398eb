"""A peer whose neighbours are not up yet waits without a warning; what waiting does not mend is told at once."""

import random

import numpy as np
import pytest
import scipy.sparse as sp

from gadget_svm.peers.events import DialFailed, Report, Saved, Started
from gadget_svm.peers.neighbourhood import PATIENCE_S, UNREACHABLE_ADVICE
from gadget_svm.peers.node import Node
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.status import with_state
from gadget_svm.peers.training.site import Site
from gadget_svm.study.study import Study

REFUSED = "unavailable: failed to connect: Connection refused"


@pytest.fixture
def node():
    site = Site(sp.csr_matrix(np.eye(4)), np.array([0, 1, 0, 1], dtype=np.int32), (-1.0, 1.0))
    settings = NodeSettings("north", "a:1", join=("b:1",))
    node = Node(settings, Study("test", 0.1, 4, (-1.0, 1.0), min_sites=2), site, random.Random(0))
    node.handle(Started(0.0), 0.0)
    node.handle(Saved(1), 0.0)
    assert node.phase == "live"
    return node


def told(node, reason, now):
    return [(e.level, e.text) for e in node.handle(DialFailed("b:1", reason), now) if isinstance(e, Report)]


@pytest.mark.parametrize("reason", [REFUSED, "no answer within 5 s"])
def test_at_first_a_peer_says_once_that_it_waits(node, reason):
    assert told(node, reason, 0.5) == [("info", "waiting for a peer to answer at b:1; it is dialled again and again")]
    assert told(node, reason, 2.0) == []
    ((level, text),) = told(node, reason, 0.5 + PATIENCE_S)
    assert level == "warning"
    assert text == f"cannot reach b:1: {reason}{UNREACHABLE_ADVICE}"
    assert "If the study has ended there, copy model.safetensors from another site" in text


def test_a_certificate_that_does_not_fit_is_a_warning_at_once(node):
    reason = "unavailable: Hostname Verification Check failed"
    assert told(node, reason, 0.5)[0] == (
        "warning", f"cannot reach b:1: {reason}{UNREACHABLE_ADVICE}"
    )  # fmt: skip


def test_a_peer_that_leaves_does_not_say_that_it_waits(node):
    node._leave("stop")
    node.handle(Saved(2), 0.5)
    assert told(node, REFUSED, 0.6) == []


def test_an_isolated_peer_names_the_sites_that_are_missing(node):
    told(node, REFUSED, 0.5)
    missing = {"members": {"alive": 1, "dead": 1}, "missing": ["a", "c"]}
    shown = with_state(node.status(1.0) | missing)
    assert shown["state"] == "isolated"
    assert "sites of the study that are not here: a, c" in shown["why"]
