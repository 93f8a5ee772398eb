"""A runtime of two nodes that follows a script, to test what is around a runtime."""

import numpy as np
import scipy.sparse as sp

from gadget_svm.algorithms.certificate import Certificate
from gadget_svm.core.rows import Objective
from gadget_svm.simulation.runtime import Layout
from gadget_svm.simulation.trainer import Schedule, train


class Script:
    """Two nodes with the weights path(t); with a clock, an iteration takes one second."""

    def __init__(self, path, clock=None):
        self.path, self.t, self.messages, self.nbytes, self.calls, self.clock = path, 0, 0, 0, [], clock

    def warm_up(self):
        """Nothing to compile."""

    def advance(self, count):
        self.t, self.messages = self.t + count, self.messages + 2 * count
        self.calls.append(count)
        if self.clock is not None:
            self.clock[0] += count

    def weights(self):
        return np.full((2, 1, 3), float(self.path(self.t)))

    models = weights

    def live_row_weights(self):
        return np.array([1.0, 3.0])

    def live_mask(self):
        return np.array([True, True])

    def events(self):
        return []

    def certify(self):
        """A bound of 1/t for the model w_t = 7; it takes two messages and three seconds."""
        self.messages += 2
        if self.clock is not None:
            self.clock[0] += 3
        bound = np.array([1 / self.t])
        return Certificate(np.full((1, 3), 7.0), 0, bound, np.ones(1), 2.0, 2, 5, 2, 100, nodes=np.arange(2))


def flat_objective():
    label = np.array([0, 1], dtype=np.int32)
    return Objective(sp.csr_matrix(np.eye(2, 3)), label, np.ones(2), np.ones(2), 0.1, 1)


def layout(evaluate=None, trained=range(3), width=3):
    return Layout(["a", "b"], width, np.array(trained), evaluate or flat_objective())


def trained(path, rule=None, max_iter=1000, record_every=0, observers=(), evaluate=None, **limits):
    """The outcome of a training of such a runtime, and the runtime."""
    runtime = path if isinstance(path, Script) else Script(path)
    schedule = Schedule(max_iter, record_every=record_every, **limits)
    return train(runtime, rule, schedule, layout(evaluate), observers), runtime
