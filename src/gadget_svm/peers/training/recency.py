"""GADGET among neighbours that come and go: how it lets go of what is over. PDMM needs none of this.

Its step sizes 1 / (lam t) make w the average of all its steps so far, and its model is the average of all w: what was
learned with one who has crashed, or before one joined, would count for as long again as it was there.
"""

import numpy as np

from gadget_svm.core.block import Block

RECENT = 3
"""Iterate t counts for t ** RECENT in the model (Shamir and Zhang 2013): the first half for a sixteenth."""
ANEW = 300
"""Ticks' worth of steps after which the schedule goes on when who is here has changed: w stays, and soon moves. With
fewer the noise of early steps is back (10: 14 % off for a while, 300: 2 %), also if all that changed was a restart."""


class Recency:
    """Of one node."""

    def __init__(self) -> None:
        self.epoch: int | None = None

    def after_tick(self, block: Block, local_steps: int) -> None:
        """Weigh the iterate that came in; or begin anew, if running sums did."""
        epoch, count, w = int(block.edge["epoch"][0]), int(block.iterates[0]), block.w[0]
        if self.epoch is not None and epoch > self.epoch:
            block.steps[:] = np.minimum(block.steps, ANEW * local_steps)
            block.iterates[:], block.w_sum[0] = 1, w
        elif count > 1:
            mean = (block.w_sum[0] - w) / (count - 1)
            block.w_sum[0] = count * (mean + (RECENT + 1) / (count + RECENT) * (w - mean))
        self.epoch = epoch
