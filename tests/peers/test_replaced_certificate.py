"""A later certificate that covers fewer sites: the log says once which sites it no longer covers."""

import numpy as np
import pytest

from gadget_svm.peers.certification import Certification, Situation
from gadget_svm.peers.events import Report
from gadget_svm.peers.links import LinkTable
from gadget_svm.peers.outbox import Outbox
from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.wire.messages import CertificateId, Certified, CoveredSite
from gadget_svm.study.study import Study

HERE = Situation(0.0, 0.0, 1, 10.0, frozenset(), Scale(np.ones(2), np.zeros(2)), b"s", 9)


def certificate(number, names):
    sites = tuple(CoveredSite(name, 1, 10.0) for name in names)
    bounds, duals = np.array([0.005]), np.array([1.0])
    return Certified(CertificateId(number, "a", 1), 5.0, b"s", np.arange(3.0), bounds, duals, sites, 9)


@pytest.mark.parametrize(
    ("names", "told"),
    [
        (["abc", "ab", "ab"], ["the certificate of a, b replaces that of a, b, c"]),
        (["ab", "abc"], []),
        (["ab", "bc"], ["the certificate of b, c replaces that of a, b"]),
    ],
)
def test_a_certificate_that_covers_fewer_sites_is_told_once(names, told):
    out = Outbox()
    study = Study("s", 0.1, 2, (-1.0, 1.0), min_sites=2)
    certification = Certification(NodeSettings("a", "a:1"), study, LinkTable("a"), out)
    for number, some in enumerate(names, 1):
        certification.received("b", certificate(number, some), HERE)
    assert certification.policy.latest.id.number == len(names)
    warnings = [each for each in out.take() if isinstance(each, Report) and each.level == "warning"]
    assert [each.text for each in warnings] == told
