"""The metrics of a peer for Prometheus, made from its status document when they are asked for.

Owns names, help texts and labels. What is not known yet is NaN, not 0. Labels are words of this program, never of other
peers, so that these cannot add series.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "gadget_peer_"
STATES = ("starting", "waiting", "learning", "converged", "certified", "isolated", "degraded", "stuck", "leaving")
MEMBER_STATES = ("alive", "suspect", "dead", "left")
GAUGES = {
    "objective": "The estimated objective over all sites.",
    "gap_estimate": "The estimated relative gap to the optimum; not a bound.",
    "disagreement": "How far this model is from its neighbours', relative.",
    "incarnation": "Grows with every start of a peer of this name.",
    "certificate_days_left": "Days until this peer's TLS certificate ends.",
    "snapshot_age": "Seconds since the last snapshot was on disk.",
    "links_open": "Open links to other peers.",
    "uptime": "Seconds since the start.",
    "certified_gap": "The relative gap of the certified model to the optimum; a bound.",
    "certified_rows": "Rows that the certified model covers.",
    "certified_timestamp_seconds": "When the model was certified, in Unix time.",
}
CERTIFIED = {"certified_gap": "bound", "certified_rows": "rows", "certified_timestamp_seconds": "time"}
"""Gauges that come from the status of the certified model."""
PRIVACY = {
    "rounds": "Rounds of a private study's plan that are done.",
    "rounds_planned": "Rounds of its plan.",
    "epsilon_spent": "What the rows have spent in this private study, at its delta.",
    "epsilon_spent_in_all_studies": "What the rows have spent in all private studies, at the delta of [privacy].",
}
"""Gauges of private studies only, by their key in the status."""
COUNTERS = {
    "ticks": "Training steps since the start.",
    "messages_sent": "Messages sent to other peers.",
    "messages_received": "Messages of other peers that were accepted.",
    "bytes_sent": "Bytes of messages sent, as encoded.",
    "bytes_received": "Bytes of messages received, as encoded.",
    "dial_failures": "Attempts to open a link that failed.",
    "snapshots": "Snapshots and model files written.",
    "snapshot_failures": "Snapshots and model files that could not be written.",
    "step_seconds": "Time spent in training steps.",
    "snapshot_seconds": "Time spent on writing snapshots and model files.",
}


class StatusCollector(Collector):
    """Turns a status document into metrics."""

    def __init__(self, status: Callable[[], Mapping[str, Any]]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of one status document."""
        found = self._status()
        about = {key: str(found.get(key, "")) for key in ("name", "study", "algorithm")}
        yield InfoMetricFamily(PREFIX[:-1], "Which peer this is.", about)
        state = GaugeMetricFamily(PREFIX + "state", "1 for the state that the peer is in.", labels=["state"])
        yield _filled(state, {state: found.get("state") == state for state in STATES})
        members = GaugeMetricFamily(PREFIX + "members", "Known peers by state, this one among them.", labels=["state"])
        yield _filled(members, {state: found.get("members", {}).get(state, 0) for state in MEMBER_STATES})
        text = "Messages and connections refused, by reason."
        yield _filled(CounterMetricFamily(PREFIX + "refused", text, labels=["reason"]), found.get("refused", {}))
        certified = found.get("certified") or {}
        values = {**found, **{name: certified.get(key) for name, key in CERTIFIED.items()}}
        if privacy := found.get("privacy"):
            for name, text in PRIVACY.items():
                yield GaugeMetricFamily(f"{PREFIX}privacy_{name}", text, float(privacy[name]))
        for family, table in ((GaugeMetricFamily, GAUGES), (CounterMetricFamily, COUNTERS)):
            for name, text in table.items():
                value = values.get(name)
                yield family(PREFIX + name, text, float(value) if isinstance(value, int | float) else math.nan)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, values: Mapping[str, float]) -> Metric:
    for label, value in values.items():
        family.add_metric([label], value)
    return family
