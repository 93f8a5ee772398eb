"""Logs and metrics of an actor.

Log lines go to stderr, which Ray keeps in the actor's log file. Metrics go to Ray's exporter, which Prometheus reads.
Imports Ray only inside an actor.
"""

import logging
from importlib import import_module
from typing import Any

FORMAT = "%(asctime)s %(name)s %(levelname)s %(message)s"
METRICS = {
    "gadget_iteration": ("Gauge", "Iteration that the actor's nodes are at."),
    "gadget_rows": ("Gauge", "Training rows of the actor's nodes."),
    "gadget_checkpoint_iteration": ("Gauge", "Iteration of the last checkpoint that the actor wrote."),
    "gadget_messages": ("Counter", "Messages that the actor's nodes sent."),
    "gadget_bytes": ("Counter", "Bytes that the actor's nodes sent."),
}
"""All have the tag ``actor``, the actor's name."""


class Telemetry:
    """Reports nothing: the telemetry of an actor outside Ray."""

    def log(self, text: str) -> None:
        """Write a line to the actor's log file."""

    def gauge(self, name: str, value: float) -> None:
        """Set a metric."""

    def count(self, name: str, amount: float) -> None:
        """Add to a metric."""


class RayTelemetry(Telemetry):
    """Reports under the name of the actor in whose process it is made."""

    def __init__(self, name: str) -> None:
        self._tags, kinds = {"actor": name}, import_module("ray.util.metrics")
        self._metrics: dict[str, Any] = {
            metric: getattr(kinds, kind)(metric, description=about, tag_keys=("actor",))
            for metric, (kind, about) in METRICS.items()
        }
        self._logger = logging.getLogger(name)
        self._logger.setLevel(logging.INFO)
        self._logger.propagate = False  # Ray's own handlers would write the line again
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
        self._logger.addHandler(handler)

    def log(self, text: str) -> None:
        self._logger.info(text)

    def gauge(self, name: str, value: float) -> None:
        self._metrics[name].set(value, tags=self._tags)

    def count(self, name: str, amount: float) -> None:
        if amount > 0:  # Ray refuses to add 0
            self._metrics[name].inc(amount, tags=self._tags)
