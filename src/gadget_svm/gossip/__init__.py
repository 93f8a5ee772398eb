"""The gossip protocols, by name. A new one is a file here, a line in the table, and the tests of its kind."""

from gadget_svm.gossip.average import average, averaging_block, rounds
from gadget_svm.gossip.base import Gossip, Round, estimate
from gadget_svm.gossip.pairwise import Pairwise
from gadget_svm.gossip.push_sum import Diffusion, PushSum
from gadget_svm.gossip.running_sum import RunningSum
from gadget_svm.gossip.stopping import until_converged

PROTOCOLS: dict[str, type[Gossip]] = {
    "push-sum": PushSum,
    "diffusion": Diffusion,
    "pairwise": Pairwise,
    "running-sum": RunningSum,
}

__all__ = [
    "PROTOCOLS", "Diffusion", "Gossip", "Pairwise", "PushSum", "Round", "RunningSum", "average", "averaging_block",
    "estimate", "rounds", "until_converged",
]  # fmt: skip
