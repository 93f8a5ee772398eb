"""Gossip protocols: how nodes average vectors by sending messages to their neighbours."""

from gadget_svm.gossip.average import PROTOCOLS, average, averaging_block, resolve, rounds
from gadget_svm.gossip.base import Gossip, Round, absorb, draw_edges, estimate, make_messages, message_order, resume
from gadget_svm.gossip.pairwise import Pairwise
from gadget_svm.gossip.push_sum import Diffusion, PushSum
from gadget_svm.gossip.robust import RobustMixing
from gadget_svm.gossip.running_sum import RunningSum

__all__ = [
    "PROTOCOLS", "Diffusion", "Gossip", "Pairwise", "PushSum", "RobustMixing", "Round", "RunningSum", "absorb",
    "average", "averaging_block", "draw_edges", "estimate", "make_messages", "message_order", "resolve", "resume",
    "rounds",
]  # fmt: skip
