"""The gossip protocols by name. To add one, write a file in this folder and a line in the table."""

from collections.abc import Callable

from gadget_svm.core.registry import Registry
from gadget_svm.gossip.base import Gossip
from gadget_svm.gossip.pairwise import Pairwise
from gadget_svm.gossip.push_sum import Diffusion, PushSum
from gadget_svm.gossip.running_sum import RunningSum

PROTOCOLS: Registry[Callable[[], Gossip]] = Registry(
    "gadget_svm.gossip", {"push-sum": PushSum, "diffusion": Diffusion, "pairwise": Pairwise, "running-sum": RunningSum}
)


def resolve(gossip: object) -> Gossip:
    """Return the protocol of this name, or the protocol itself if it is given as an object."""
    found: Gossip = PROTOCOLS.resolve("gossip protocol", gossip, Gossip, "PushSum()")
    return found
