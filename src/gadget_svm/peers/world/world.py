"""A simulated world: machines, their rows, the network between them, and the faults that happen to them.

Owns how all of it is made from a scenario and a seed, and when a run ends. One scenario and one seed give one history.
"""

import random
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from gadget_svm.peers.settings import NodeSettings
from gadget_svm.peers.training.site import Site
from gadget_svm.peers.wire.messages import Message
from gadget_svm.peers.world.clock import MachineClock
from gadget_svm.peers.world.deployment import Deployment, draw_deployments
from gadget_svm.peers.world.disk import Disk
from gadget_svm.peers.world.event_queue import EventQueue
from gadget_svm.peers.world.fault_injection import draw_roles, schedule
from gadget_svm.peers.world.goals import Goals
from gadget_svm.peers.world.intruder import HOSTILE, make_hostile
from gadget_svm.peers.world.invariants import InvariantError, Invariants
from gadget_svm.peers.world.machine import Hardware, Machine, MakeNode, NodeLike
from gadget_svm.peers.world.network import SimulatedNetwork
from gadget_svm.peers.world.randomness import generator, whole_within
from gadget_svm.peers.world.scenario import Scenario
from gadget_svm.peers.world.shards import Optima, draw_classes, generate
from gadget_svm.study.study import Study

NodeFactory = Callable[[NodeSettings, Study, Site, random.Random], NodeLike]
SUPERVISOR_DELAY_S = 3.0
MAX_RESTARTS = 30
"""A process that ends with an error is started again by its supervisor, but not for ever."""
PACE = {"tick": 0.25, "heartbeat": 1.0, "suspect": 4.0, "dead": 4.0, "snapshot_interval": 5.0, "export_interval": 15.0}
TERMS = {"lam": 0.05, "degree": 4, "gap": 0.01}


class World:
    """Everything in one run."""

    def __init__(
        self, scenario: Scenario, seed: int, *, make_node: NodeFactory, say: Callable[[str, str], None] | None = None,
        transcoder: Callable[[Study], Callable[[Message], Message]] | None = None,
    ) -> None:  # fmt: skip
        self.scenario, self.seed, self.make_node = scenario, seed, make_node
        self.rng = generator(seed, "world")
        self.queue = EventQueue()
        self.network = SimulatedNetwork(self.queue, scenario.links, seed)
        count = whole_within(self.rng, scenario.peers)
        names = tuple(f"peer-{i:0{len(str(count - 1))}}" for i in range(count))
        self.roles, targets = draw_roles(scenario, names, seed)
        self.shards = generate(names, scenario.data, seed)
        self.study = self._study(next(iter(self.shards.values())).X.shape[1])
        self.network.transcode = None if transcoder is None else transcoder(self.study)
        self.optima = Optima(self.shards, self.study.lam, self.study.intercept, self.study.outputs)
        added = [(plan.kind, f"{plan.kind}-{i}") for i, (plan, _) in enumerate(targets) if plan.kind in ADDED]
        strangers = frozenset(name for _, name in added)
        self.network.hostile = strangers
        self.hostile_neighbours = frozenset(name for kind, name in added if kind == "hostile-neighbour")
        self.invariants = Invariants(
            self.study, self.optima, names, strangers, strangers - self.hostile_neighbours, say
        )
        self.machines: dict[str, Machine] = {}
        places = draw_deployments(scenario, self.roles, seed)
        for name, place in places.items():
            self._add_peer(name, place)
            if name in self.roles.twice:
                self._add_second(name, place)
        schedule(targets, scenario, seed, dict(self.machines), self.network, self.queue)
        for kind, name in added:
            self._add_stranger(kind, name, tuple(place.address for place in places.values() if place.address))
        self.queue.at(scenario.faults_stop, self.network.calm)
        self.restarts = 0
        self.goals = Goals(scenario, self.study, self.roles, self.machines, self.optima, self.queue)

    def run(self) -> None:
        """Run until the goals are reached; raise InvariantError if they are not in time, or if something is wrong."""
        end = self.scenario.faults_stop + self.scenario.settle
        self._supervise()
        self.queue.at(self.goals.first_check, self._check)
        self.queue.run(end)
        if not self.queue.stopped:
            missing = "; ".join(self.goals.missing())
            since = (
                f"{self.scenario.settle:g} s after the faults stopped" if self.scenario.settle else f"after {end:g} s"
            )
            raise InvariantError(f"{since}: {missing}")

    def _check(self) -> None:
        if self.goals.check():
            self.queue.stop()
        else:
            self.queue.after(self.goals.interval, self._check)

    # Machines

    def _study(self, n_features: int) -> Study:
        survivors = self.roles.survivors
        terms = TERMS | {"min_sites": len(survivors) // 2 + 1} | dict(self.scenario.study)
        if self.scenario.finish:
            terms["sites"] = tuple(survivors)
        classes = draw_classes(self.scenario.data, self.seed)
        return Study(name="simulated", n_features=n_features, classes=classes, **terms)

    def _add_peer(self, name: str, place: Deployment, identity: str = "") -> None:
        settings = replace(self._settings(identity or name, place.told, place.join), reachable=place.reachable)
        site = self._site(identity or name)
        machine = self._machine(
            name, place.address, lambda rng: self.make_node(settings, self.study, site, rng), identity
        )
        self.queue.at(place.start, machine.start)

    def _add_second(self, name: str, place: Deployment) -> None:
        """Add a second process of a peer, on a machine of its own."""
        other = f"{name}/2"
        address = f"{name}-2:7400"
        there = replace(place, address=address, told=address, start=self.roles.twice[name])
        self._add_peer(other, there, identity=name)

    def _site(self, name: str) -> Site:
        return Site(self.shards[name].X, self.shards[name].label, self.study.classes)

    def _add_stranger(self, kind: str, name: str, addresses: tuple[str, ...]) -> None:
        """Add a machine of which nothing may count: a hostile one, or a peer of another study."""
        settings = self._settings(name, f"{name}:7400", addresses)
        if kind in HOSTILE:
            machine = self._machine(
                name, settings.address, lambda _: make_hostile(kind, settings, self.study, self.seed)
            )
        else:
            study = replace(self.study, lam=2 * self.study.lam)
            site = self._site(self.roles.names[0])
            machine = self._machine(name, settings.address, lambda rng: self.make_node(settings, study, site, rng))
        self.queue.at(generator(self.seed, name).uniform(0.0, 0.5 * self.scenario.faults_stop), machine.start)

    def _settings(self, name: str, address: str, join: tuple[str, ...]) -> NodeSettings:
        end = "finished" if self.study.is_private else "certified"
        own: dict[str, Any] = {"until": end if self.scenario.finish else "stopped", "noise": "seeded"}
        values = PACE | own | dict(self.scenario.settings)
        return NodeSettings(name, address, join=join, seed=self.seed, **values)

    def _machine(self, name: str, address: str, make: MakeNode, identity: str = "") -> Machine:
        rng, plan = generator(self.seed, "hardware", name), self.scenario.disks
        drift = 1.0 + self.scenario.clock_drift * rng.uniform(-1.0, 1.0)
        clock = MachineClock(rng.uniform(0.0, 1e5), drift)
        disk = Disk(self.queue, generator(self.seed, "disk", name), plan.latency, plan.tear)
        hardware = Hardware(self.queue, self.network, disk, clock, self.scenario.step_seconds)
        machine = self.machines[name] = Machine(name, address, hardware, make, self.seed, self.invariants, identity)
        self.network.attach(machine)
        return machine

    def _supervise(self) -> None:
        """Start processes again that ended with an error, but not if another process has the name."""
        for machine in self.machines.values():
            error = "" if machine.finish is None or machine.running else machine.finish.error
            if error and not machine.superseded and machine.identity in self.roles.names:
                self.restarts += 1
                if self.restarts > MAX_RESTARTS:
                    raise InvariantError(f"{machine.name} ends again and again: {error}")
                machine.start()
        self.queue.after(SUPERVISOR_DELAY_S, self._supervise)


ADDED = (*HOSTILE, "other-study")
"""Faults that are machines."""


def node_factory() -> NodeFactory:
    """Return the real node's constructor; it is imported on use."""
    from gadget_svm.peers.node import Node

    return Node


def run_world(world: World) -> str:
    """Run a world; return what went wrong, or an empty text. An exception in a node is a failure like others."""
    try:
        world.run()
    except AssertionError as error:
        return str(error) or repr(error)
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        return f"{type(error).__name__}: {error} ({Path(where.filename).name}, line {where.lineno})"
    return ""
