"""Whether others can dial this node, and whether it can dial them. Owns what dials have shown; decides no edges.

A node that any peer dials is reachable. If a peer has dialled a node, the node dials that peer back once, and tells it
if this fails. A node that is told so, and that no peer has dialled, dials out only from then on.
"""

from collections.abc import Collection

from gadget_svm.peers.issues import IssueTable
from gadget_svm.peers.links import Link, LinkTable
from gadget_svm.peers.membership.failure_detector import FailureDetector
from gadget_svm.peers.outbox import Outbox
from gadget_svm.peers.settings import NodeSettings


class Reachability:
    """What is known of the reachability of one node, and of the peers to which it has links."""

    def __init__(
        self, settings: NodeSettings, detector: FailureDetector, links: LinkTable, out: Outbox, issues: IssueTable
    ) -> None:
        self._settings, self._detector, self._links, self._out, self._issues = settings, detector, links, out, issues
        self._works: dict[str, bool] = {}  # peers whose address was dialled, and whether that worked

    def linked(self, link: Link) -> None:
        """Note a link: if this node opened it, the address of the other end works."""
        self._works[link.name] = link.dialled is not None or self._works.get(link.name, False)

    def dial_failed(self, names: Collection[str]) -> None:
        """Note that the address of these peers did not answer. For peers without a link this proves nothing."""
        self._works.update({name: False for name in names if self._links.ready(name) is not None})

    def cannot_dial(self, name: str) -> bool:
        """Return whether a dial to a linked peer has failed."""
        return self._works.get(name) is False

    def forget(self, name: str) -> None:
        """Note that a peer has restarted: its address is tested again."""
        self._works.pop(name, None)

    def dial_back(self) -> None:
        """Dial each peer that has dialled this node once, to test the address that it tells others."""
        for link in self._links.all_ready():
            if link.dialled is None and link.name not in self._works:
                line = self._detector.table.known(link.name)
                if line is not None and line.reachable and line.address:
                    self._works[link.name] = True  # until it fails
                    self._out.dial(line.address, link.name)

    def was_dialled(self) -> None:
        """Note that a peer has dialled this node."""
        if not self._detector.me.reachable and self._may_change:
            self._detector.beat(reachable=True)
            self._issues.resolve("reachability")

    def was_not_reached(self, by: str, now: float) -> None:
        """Note that a peer could not dial this node. If another peer could, the problem is at the first one."""
        if not self._detector.me.reachable or not self._may_change:
            return
        if any(link.dialled is None for link in self._links.all_ready()):
            return
        self._detector.beat(reachable=False)
        address = self._settings.address
        text = f"{by} cannot connect to {address}: this site dials out only, until that port is open"
        self._issues.report("reachability", text, now)

    def no_site_is_reachable(self, now: float) -> None:
        """Report that no two sites can be connected."""
        text = (
            "no site accepts connections: at one site at least, set [peer] address and reachable = true, and open "
            "the port of [peer] listen"
        )
        self._issues.report("reachability", text, now)

    @property
    def _may_change(self) -> bool:
        return bool(self._settings.address) and self._settings.reachable is not False
