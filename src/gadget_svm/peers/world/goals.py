"""What must be reached after the faults of a scenario have stopped. Looks at nodes and disks, and changes nothing."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gadget_svm.core.types import Floats
from gadget_svm.peers.storage.snapshot import ModelDocument
from gadget_svm.peers.training.scale import Scale
from gadget_svm.peers.world.event_queue import EventQueue
from gadget_svm.peers.world.fault_injection import Roles
from gadget_svm.peers.world.invariants import document_digest, scale_of
from gadget_svm.peers.world.machine import Machine
from gadget_svm.peers.world.scenario import Scenario
from gadget_svm.peers.world.shards import Optima
from gadget_svm.study.study import Study

MAX_SAMPLED = 20
"""Peers whose models are evaluated for a record of the run."""
CHECK_INTERVAL_S = 1.0
CHECKS_IN_A_ROW = 3
"""Models must be good at so many checks: one that passes the optimum on its way elsewhere is not."""


@dataclass
class Goals:
    """The end of a run: every live peer has a good model, and the certificate is about the live peers."""

    scenario: Scenario
    study: Study
    roles: Roles
    machines: Mapping[str, Machine]
    optima: Optima
    queue: EventQueue
    interval: float = CHECK_INTERVAL_S
    reached: dict[str, float] = field(default_factory=dict)  # when each goal was reached first
    ticks: int | None = None  # the most of one peer when all models were good
    history: list[dict[str, float]] | None = None  # records of the run, if they are wanted
    _good: int = 0
    _machines: dict[str, list[Machine]] = field(default_factory=dict)  # by the name of their peer

    def __post_init__(self) -> None:
        """Find the machines of each peer."""
        for machine in self.machines.values():
            self._machines.setdefault(machine.identity, []).append(machine)

    @property
    def first_check(self) -> float:
        """When to look first. Without faults there is nothing to wait for."""
        return self.scenario.faults_stop if self.scenario.faults else self.interval

    def check(self) -> bool:
        """Return whether everything is reached, and was at the last checks."""
        if self.history is not None:
            self.history.append(self._record())
        missing = next(self.missing(), None)
        self._good = 0 if missing else self._good + 1
        return self._good >= (1 if self.scenario.finish else CHECKS_IN_A_ROW)

    def _record(self) -> dict[str, float]:
        """Return the state of the run, with the worst model of a sample of the peers."""
        survivors = self.roles.survivors
        machines = [self._machine(name) for name in survivors]
        sample = survivors[:: -(-len(survivors) // MAX_SAMPLED)]
        models = [model for name in sample if (model := self._model(name, survivors)) is not None]
        traffic = machines[0].network.traffic
        return {
            "seconds": self.queue.now,
            "iteration": self._ticks(survivors),
            "messages": traffic.messages,
            "bytes": traffic.nbytes,
            "excess": max((self.optima.excess(model, survivors, scale) for model, scale in models), default=math.nan),
            "certified": sum("model" in m.disk.models and m.disk.models["model"].kind == "certified" for m in machines),
        }

    def missing(self) -> Iterator[str]:
        """Yield what is not reached yet."""
        survivors = self.roles.survivors
        yield from self._missing_stops()
        if self.scenario.finish:
            yield from self._missing_ends(survivors)
        else:
            yield from self._missing_models(survivors)
        if self.scenario.certified or self.scenario.finish:
            yield from self._missing_certificate(survivors)

    def _missing_models(self, survivors: list[str]) -> Iterator[str]:
        is_good = True
        for name in survivors:
            found = self._model(name, survivors)
            if found is None:
                is_good = False
                yield f"{name} {'has no model' if self._machine(name).running else 'does not run'}"
                continue
            excess = self.optima.excess(found[0], survivors, found[1])
            if not excess <= self.scenario.tolerance:
                is_good = False
                yield f"{name} is {excess:.2%} above the optimum of {len(survivors)} live peers"
        if is_good and "models" not in self.reached:
            self.reached["models"], self.ticks = self.queue.now, self._ticks(survivors)

    def _ticks(self, survivors: list[str]) -> int:
        return max((self._machine(name).steps for name in survivors), default=0)

    def _machine(self, name: str) -> Machine:
        """Return the machine of a peer; of two, the one whose process was not told to stop."""
        return next((machine for machine in self._machines[name] if not machine.superseded), self._machines[name][0])

    def _missing_stops(self) -> Iterator[str]:
        for name in self.roles.twice:
            running = [machine for machine in self._machines[name] if not machine.superseded]
            if len(running) != 1:
                yield f"{len(running)} processes run as {name}, which was started twice"

    def _model(self, name: str, survivors: list[str]) -> tuple[Floats, Scale | None] | None:
        """Return a running peer's model: the certified one if it covers all live peers, else what the node has."""
        machine = self._machine(name)
        if machine.node is None:
            return None
        stored = machine.disk.models.get("model")
        if stored is not None and stored.kind == "certified" and covered_names(stored) == survivors:
            return stored.weights, Scale(stored.divisor, stored.shift)
        model = machine.node.model()
        return None if model is None else (model, scale_of(machine.node))

    def _missing_ends(self, survivors: list[str]) -> Iterator[str]:
        for name in survivors:
            machine = self._machine(name)
            if machine.running or machine.finish is None or machine.finish.error:
                yield f"{name} has not ended with a certified model"

    def _missing_certificate(self, survivors: list[str]) -> Iterator[str]:
        digests = set()
        for name in survivors:
            stored = self._machine(name).disk.models.get("model")
            if stored is None or stored.kind != "certified":
                yield f"{name} has no certified model"
                return
            if (covered := covered_names(stored)) != survivors:
                yield f"the certificate of {name} covers {', '.join(covered)}, not {', '.join(survivors)}"
                return
            if not self.study.is_private and stored.metadata["gap_bound"] > self.study.gap:
                yield f"the certificate of {name} has the bound {stored.metadata['gap_bound']:.2%}"
                return
            digests.add(document_digest(stored))
        if len(digests) > 1:
            yield "sites have different certified models"
            return
        self.reached.setdefault("certified", self.queue.now)


def covered_names(model: ModelDocument) -> list[str]:
    """Return the names of the sites that a certified model covers."""
    return sorted(site[0] for site in model.metadata["sites"])
