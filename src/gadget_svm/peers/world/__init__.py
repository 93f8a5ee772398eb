"""Deterministic simulation of peers: virtual time, faulty networks and disks, one seed for one history."""

from gadget_svm.peers.world.scenario import Scenario, load, names
from gadget_svm.peers.world.simulate import Result, network_plan, run, run_many, simulate

__all__ = ["Result", "Scenario", "load", "names", "network_plan", "run", "run_many", "simulate"]
