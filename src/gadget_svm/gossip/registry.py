"""The gossip protocols by name. To add one, write a file in this folder and a line in the table."""

from collections.abc import Callable

from gadget_svm.core.lookup import lookup
from gadget_svm.core.registry import Registry
from gadget_svm.gossip.base import Gossip
from gadget_svm.gossip.pairwise import Pairwise
from gadget_svm.gossip.push_sum import Diffusion, PushSum
from gadget_svm.gossip.running_sum import RunningSum

PROTOCOLS: Registry[Callable[[], Gossip]] = Registry(
    "gadget_svm.gossip", {"push-sum": PushSum, "diffusion": Diffusion, "pairwise": Pairwise, "running-sum": RunningSum}
)


def resolve(gossip: object) -> Gossip:
    """Return the protocol of this name, or the protocol itself if it is given as an object.

    Raises
    ------
    ValueError
        If no protocol has this name.
    TypeError
        If it is neither a name nor an instance of a `Gossip` class.
    """
    found: object = lookup("gossip protocol", gossip, PROTOCOLS)() if isinstance(gossip, str) else gossip
    if isinstance(found, type) or not isinstance(found, Gossip):
        raise TypeError(
            f"a gossip protocol is a name ({', '.join(PROTOCOLS)}) or an instance of a class that derives from "
            f"gadget_svm.gossip.Gossip, such as PushSum(); got {gossip!r}"
        )
    return found
