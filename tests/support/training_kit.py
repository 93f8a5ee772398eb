"""Sites, learners and training sessions without links, and nets of them whose messages arrive at once."""

import numpy as np
import scipy.sparse as sp

from gadget_svm.peers.training.learner import Learner
from gadget_svm.peers.training.session import TrainingSession
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.wire.messages import Push
from gadget_svm.study.study import Study
from support.peer_sites import LAM, SITES


def rows(n=40, d=12, seed=0, density=1.0):
    """Rows of a noisy linear rule that is the same for every seed."""
    rng = np.random.default_rng([7, seed])
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < density)
    y = np.where(X @ np.random.default_rng(d).normal(size=d) + 0.3 * rng.normal(size=n) > 0, 1, -1)
    y[:2] = (-1, 1)
    return sp.csr_matrix(X), y


def study(algorithm="pdmm", d=12, **fields):
    return Study("test", fields.pop("lam", LAM), d, (-1.0, 1.0), algorithm, **fields)


def learner(data, algorithm="pdmm", node=0, neighbours=(), seed=None, chosen=None, **fields):
    """A learner of these rows, or of a site by its name."""
    X, y = SITES[data] if isinstance(data, str) else data
    terms = study(algorithm, X.shape[1], **fields)
    found = Learner(X, (y > 0).astype(np.int32), terms, node, seed=node if seed is None else seed, algorithm=chosen)
    if neighbours:
        found.set_neighbours(list(neighbours))
    return found


class LearnerNet:
    """Learners that get each other's messages in the next tick."""

    def __init__(self, names, algorithm="pdmm"):
        self.algorithm = algorithm
        self.learners = {i: self.learner(i, name) for i, name in enumerate(names)}
        for i, each in self.learners.items():
            each.set_neighbours([j for j in self.learners if j != i])

    def learner(self, i, name):
        return learner(name, self.algorithm, i)

    def run(self, ticks, *some):
        waiting = {i: [] for i in some or self.learners}
        for _ in range(ticks):
            sent = {i: self.learners[i].solve() for i in waiting}
            for i in waiting:
                self.learners[i].absorb(waiting[i])
                waiting[i] = []
            for i, messages in sent.items():
                for message in messages:
                    if message.other in waiting:
                        waiting[message.other].append(message._replace(other=i, vector=message.vector.copy()))

    def drop(self, i, other):
        self.learners[i].set_neighbours([j for j in self.learners[i].neighbours if j != other])


def site(data, **fields):
    X, y = SITES[data] if isinstance(data, str) else data
    return Site(X, (y > 0).astype(np.int32), (-1.0, 1.0), **fields)


def session(name, data=None, algorithm="pdmm", seed=None, **fields):
    """A session of a site, by default of that with the session's name."""
    found = site(name if data is None else data)
    return TrainingSession(
        study(algorithm, found.X.shape[1], **fields), found, name, ord(name[0]) if seed is None else seed
    )


def step(one, open_to=(), measure=False):
    """Run a session's next step; return what it sends."""
    what = one.next_step(open_to, measure)
    return () if what is None else one.finish(what())


def as_push(one, sent, incarnation=1):
    return Push(incarnation, 1, sent[1], one.ticks, sent[2].copy(), sent[3], sent[4], one.scale_digest)


class SessionNet:
    """Sessions that get each other's pushes in the next tick."""

    def __init__(self, sessions):
        self.sessions = {one.name: one for one in sessions}
        self.incarnations = dict.fromkeys(self.sessions, 1)
        self.connect()

    def connect(self):
        for one in self.sessions.values():
            one.set_edges([name for name in self.sessions if name != one.name])

    def share_statistics(self):
        for _ in range(2):
            for one in self.sessions.values():
                for other in self.sessions.values():
                    one.hear_statistics(other.statistics())

    def run(self, ticks, measure_every=0):
        for t in range(ticks):
            sent = {
                name: step(one, one.edge_names, measure_every > 0 and t % measure_every == measure_every - 1)
                for name, one in self.sessions.items()
            }
            for name, pushes in sent.items():
                for each in pushes:
                    if each[0] in self.sessions:
                        push = as_push(self.sessions[name], each, self.incarnations[name])
                        self.sessions[each[0]].receive(name, push)
