"""How a peer is: one document for `gadget peer status`, and estimates from the few numbers that ride on views."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gadget_svm.peers.logs import plain
from gadget_svm.peers.member import State
from gadget_svm.peers.overlay import node_id

if TYPE_CHECKING:
    from gadget_svm.peers.peer import Peer


class Estimates(NamedTuple):
    """Of the whole network, as one peer sees it; NaN where it cannot tell. Estimates, not bounds."""

    objective: float
    gap: float
    disagreement: float
    rows: float


def estimates(peer: Peer) -> Estimates:
    """The pooled objective and its gap from every member's own sums, and how far neighbours are from this model.

    With one model everywhere the pooled duality gap is the sum of the members' slack over all rows. Members' models
    differ a little, so each reports the worst of its own and its neighbours' on its rows; still an estimate. Where an
    edge was not used in both directions yet there is no common model, so that one who has such an edge reports none.
    """
    measured, learner = peer.study.measures, peer.learner
    if measured is None or learner is None:
        return Estimates(math.nan, math.nan, math.nan, 0.0)
    lines = [peer.members.get(name) for name in peer.members.alive() if name != peer.name]
    lines = [line for line in lines if line.rows > 0 and line.objective > 0]
    rows = float(len(learner.label)) + sum(line.rows for line in lines)
    loss = measured.loss + sum(line.loss for line in lines)
    slack = measured.slack + sum(line.slack for line in lines)
    ridge = 0.5 * peer.charter.lam * measured.norm**2
    objective = ridge + loss / rows
    dual = own_slack(peer) >= 0 and all(line.slack >= 0 for line in lines)
    gap = slack / rows / objective if dual and objective > 0 else math.nan
    return Estimates(objective, gap, _disagreement(peer), rows)


def own_slack(peer: Peer) -> float:
    """This peer's share of the pooled gap; -1 if it cannot be told, as of rows that are kept for others."""
    measured = peer.study.measures
    if measured is None or peer.legacies.kept or any(not _in_touch(peer, name) for name in peer.contacts):
        return -1.0
    return measured.slack


def _in_touch(peer: Peer, name: str) -> bool:
    """Whether weights went to this neighbour, and came from it."""
    heard = peer.mailbox.heard.get(name)
    sent = None if peer.discretion is None else peer.discretion.sent(node_id(name))
    return heard is not None and heard.last is not None and sent is not None


def _disagreement(peer: Peer) -> float:
    if peer.learner is None:
        return math.nan
    mine = np.array(peer.learner.block.flat[0])
    length = float(np.sqrt(mine @ mine))
    apart = [float(np.sqrt(((theirs - mine) ** 2).sum())) for _, theirs in peer.study.glimpses()]
    return max(apart) / length if apart and length > 0 else math.nan


def describe(peer: Peer) -> dict[str, Any]:
    """Everything worth knowing, as plain values."""
    now, found, measured, me = time.monotonic(), estimates(peer), peer.study.measures, peer.members.me
    states = peer.members.states()
    return {
        "name": peer.name,
        "address": peer.address,
        "incarnation": me.incarnation,
        "uptime": now - peer.started,
        "state": "learning" if peer.learner is not None else _waiting(peer),
        "run": peer.charter.run,
        "algorithm": peer.charter.algorithm,
        "lam": peer.charter.lam,
        "features": peer.charter.features,
        "classes": [plain(c) for c in peer.charter.classes[:20]],
        "rows": int(peer.site.X.shape[0]),
        "ticks": peer.ticks,
        "local_objective": plain(measured.objective if measured else math.nan),
        "train_accuracy": plain(measured.accuracy if measured else math.nan),
        "test_accuracy": peer.study.test_accuracy,
        "objective": plain(found.objective),
        "gap_estimate": plain(found.gap),
        "disagreement": plain(found.disagreement),
        "network_rows": found.rows,
        "messages_sent": int(_value(peer.metrics.messages_sent)),
        "messages_received": int(_value(peer.metrics.messages_received)),
        "bytes_sent": int(_value(peer.metrics.bytes_sent)),
        "bytes_received": int(_value(peer.metrics.bytes_received)),
        "send_failures": int(_value(peer.metrics.send_failures)),
        "refused": _refused(peer),
        "withheld": int(_value(peer.metrics.withheld)),
        "members": {
            "alive": states[State.ALIVE] + 1,
            "suspect": states[State.SUSPECT],
            "dead": states[State.DEAD],
            "left": states[State.LEFT],
        },
        "neighbours": [_neighbour(peer, name, now) for name in sorted(peer.contacts)],
        "kept": sorted(peer.legacies.kept),
        "checkpoint_age": plain(now - peer.keeper.saved),
        "certificate_days_left": (peer.identity.not_after - time.time()) / 86400,
        "trouble": plain(peer.trouble),
    }


def _waiting(peer: Peer) -> str:
    return f"waiting for the statistics of {peer.scaling.sites} sites, {len(peer.scaling.entries)} known"


def _neighbour(peer: Peer, name: str, now: float) -> dict[str, Any]:
    contact, heard, line = peer.contacts[name], peer.mailbox.heard.get(name), peer.members.known(name)
    return {
        "name": name,
        "address": contact.address,
        "incarnation": contact.incarnation,
        "last_heard": plain(now - heard.at if heard else math.nan),
        "sent": contact.sent,
        "received": heard.letters if heard else 0,
        "failures": contact.failures,
        "rtt": plain(contact.rtt),
        "objective": plain(line.objective if line else math.nan),
        "trouble": plain(contact.trouble),
    }


def _value(counter: Any) -> float:
    return float(next(iter(counter.collect())).samples[0].value)


def _refused(peer: Peer) -> dict[str, int]:
    samples = next(iter(peer.metrics.refused.collect())).samples
    return {s.labels["reason"]: int(s.value) for s in samples if s.name.endswith("_total") and s.value}
