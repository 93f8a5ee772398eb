"""The metrics of a peer for Prometheus, made from its status document when they are asked for.

Owns names, help texts and labels. What is not known yet is NaN, not 0. Labels come from fixed lists, so that no other
peer can add series.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

PREFIX = "gadget_peer_"
STATES = ("starting", "waiting", "learning", "converged", "certified", "isolated", "degraded", "stuck", "leaving")
MEMBER_STATES = ("alive", "suspect", "dead", "left")
OTHER = "other"
REASONS = (
    *("garbage", "version", "study", "name", "dimension", "not-finite", "range", "too-large", "sequence", "members"),
    *("expired", "revoked", "stranger", "nameless", "rate", "incarnation", "busy", "handshake", "timeout"),
)
GAUGES = {
    "objective": "The estimated objective over all sites.",
    "gap_estimate": "The estimated relative gap to the optimum; not a bound.",
    "disagreement": "How far this model is from its neighbours', relative.",
    "incarnation": "Grows with every start of a peer of this name.",
    "certificate_days_left": "Days until this peer's TLS certificate ends.",
    "snapshot_age": "Seconds since the last snapshot was on disk.",
    "links_open": "Open links to other peers.",
    "uptime": "Seconds since the start.",
}
CERTIFIED = (
    ("bound", "certified_gap", "The relative gap of the certified model to the optimum; a bound."),
    ("rows", "certified_rows", "Rows that the certified model covers."),
    ("time", "certified_timestamp_seconds", "When the model was certified, in Unix time."),
)
COUNTERS = {
    "ticks": "Training steps since the start.",
    "messages_sent": "Messages sent to other peers.",
    "messages_received": "Messages of other peers that were accepted.",
    "bytes_sent": "Bytes of messages sent, as encoded.",
    "bytes_received": "Bytes of messages received, as encoded.",
    "dial_failures": "Attempts to open a link that failed.",
    "withheld": "Pushes not sent because they might reveal too much about the rows.",
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
        yield _labelled(GaugeMetricFamily, "state", "1 for the state that the peer is in.", "state",
                        {state: float(found.get("state") == state) for state in STATES})  # fmt: skip
        members = found.get("members", {})
        yield _labelled(GaugeMetricFamily, "members", "Known peers by state, this one among them.", "state",
                        {state: _number(members.get(state, 0)) for state in MEMBER_STATES})  # fmt: skip
        refused: Counter[str] = Counter()
        for reason, count in found.get("refused", {}).items():
            refused[reason if reason in REASONS else OTHER] += count
        yield _labelled(CounterMetricFamily, "refused", "Messages and connections refused, by reason.", "reason",
                        refused)  # fmt: skip
        certified = found.get("certified") or {}
        for key, name, text in CERTIFIED:
            yield GaugeMetricFamily(PREFIX + name, text, _number(certified.get(key)))
        for name, text in GAUGES.items():
            yield GaugeMetricFamily(PREFIX + name, text, _number(found.get(name)))
        for name, text in COUNTERS.items():
            yield CounterMetricFamily(PREFIX + name, text, _number(found.get(name, 0)))


def registry_of(status: Callable[[], Mapping[str, Any]]) -> CollectorRegistry:
    """Return a registry with the metrics of one peer."""
    registry = CollectorRegistry()
    registry.register(StatusCollector(status))
    return registry


def _labelled(kind: Any, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = kind(PREFIX + name, text, labels=[label])
    for value, number in values.items():
        family.add_metric([value], number)
    return family  # type: ignore[no-any-return]


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else math.nan
