"""Names, logs and metrics of actors."""

import logging
from typing import ClassVar

import pytest

from gadget_svm.cluster import actor
from gadget_svm.cluster.actor import METRICS, Host, RayTelemetry
from support.threaded_actors import Actor, Stage


class Recorder:
    """Telemetry of one actor, kept."""

    def __init__(self):
        self.lines, self.values = [], {}

    def log(self, text):
        self.lines.append(text)

    def gauge(self, name, value):
        self.values[name] = value

    def count(self, name, amount):
        self.values[name] = self.values.get(name, 0) + amount


@pytest.fixture
def recorders(monkeypatch):
    """The recorders of all actors that are started, in that order."""
    made, start = [], Actor.start

    def with_recorder(actor):
        start(actor)
        made.append(Recorder())
        actor.host.telemetry = made[-1]

    monkeypatch.setattr(Actor, "start", with_recorder)
    return made


def test_actors_report_what_they_do(toy, tmp_path, monkeypatch, recorders):
    stage = Stage(monkeypatch, toy)
    model = stage.fit(max_iter=40, stopping=None, options={"checkpoint_dir": str(tmp_path), "checkpoint_every": 20})
    assert len(recorders) == 3
    assert {name for recorder in recorders for name in recorder.values} == set(METRICS)
    for recorder in recorders:
        assert recorder.values["gadget_iteration"] == recorder.values["gadget_checkpoint_iteration"] == 40
        assert "checkpoint of iteration 20 written" in recorder.lines
    assert sum(recorder.values["gadget_rows"] for recorder in recorders) == 60
    last = model.history_[-1]
    for name in ("messages", "bytes"):
        assert sum(recorder.values[f"gadget_{name}"] for recorder in recorders) == last[name]


def test_losses_and_restores_are_logged(toy, monkeypatch, recorders):
    stage = Stage(monkeypatch, toy)
    stage.fit(at={20: lambda: stage.kill(1)}, max_iter=60, stopping=None, record_every=10, options={"restart": True})
    assert len(recorders) == 4  # one more for the restarted actor
    for recorder in (recorders[0], recorders[2]):
        assert "actor 1 is lost" in recorder.lines
    for recorder in (recorders[0], recorders[3]):
        assert recorder.values["gadget_iteration"] == 60


class Metric:
    """Stands for a metric of Ray's."""

    made: ClassVar = {}

    def __init__(self, name, description, tag_keys):
        assert description
        assert tag_keys == ("actor",)
        self.made[name], self.calls = self, []

    def set(self, value, tags):
        self.calls.append((value, tags))

    inc = set


def test_metrics_carry_the_actors_name_and_lines_go_to_stderr(monkeypatch, capsys):
    kinds = type("metrics", (), {"Gauge": Metric, "Counter": Metric})
    monkeypatch.setattr(actor, "import_module", lambda _: kinds)
    host = Host(None, "gadget-ab-0")
    assert isinstance(host.telemetry, RayTelemetry)
    assert repr(host) == "gadget-ab-0"
    host.telemetry.gauge("gadget_iteration", 7)
    host.telemetry.count("gadget_messages", 3)
    host.telemetry.count("gadget_messages", 0)  # Ray would raise
    assert Metric.made["gadget_iteration"].calls == [(7, {"actor": "gadget-ab-0"})]
    assert Metric.made["gadget_messages"].calls == [(3, {"actor": "gadget-ab-0"})]
    host.telemetry.log("hello")
    assert capsys.readouterr().err.endswith("gadget-ab-0 INFO hello\n")
    logging.getLogger("gadget-ab-0").handlers.clear()
