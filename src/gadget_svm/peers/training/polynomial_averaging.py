"""How GADGET forgets what is out of date when neighbours come and go. PDMM needs none of this.

Its step sizes 1 / (lam t) make w the average of all steps so far, and its model is the average of all w. Without
`PolynomialAveraging`, what was learned with a node that has crashed would count for as long again as the node was
present.
"""

import numpy as np

from gadget_svm.core.block import Block

POWER = 3
"""Iterate t has the weight t ** POWER in the model (Shamir and Zhang 2013): the first half counts for a sixteenth."""
RESTART_TICKS = 300
"""Ticks' worth of steps from which the step sizes continue when the neighbours have changed: w stays, and soon moves.
With fewer the noise of early steps returns (10: 14 % above the optimum for a while, 300: 2 %)."""


class PolynomialAveraging:
    """The weights of one node's iterates."""

    def __init__(self) -> None:
        self.epoch: int | None = None

    def after_tick(self, block: Block, local_steps: int) -> None:
        """Weight the newest iterate; start a new average if the running sums have started a new epoch."""
        epoch, count, w = int(block.edge["epoch"][0]), int(block.iterates[0]), block.w[0]
        if self.epoch is not None and epoch > self.epoch:
            block.steps[:] = np.minimum(block.steps, RESTART_TICKS * local_steps)
            block.iterates[:], block.w_sum[0] = 1, w
        elif count > 1:
            mean = (block.w_sum[0] - w) / (count - 1)
            block.w_sum[0] = count * (mean + (POWER + 1) / (count + POWER) * (w - mean))
        self.epoch = epoch
