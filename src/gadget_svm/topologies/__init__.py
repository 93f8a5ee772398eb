"""Graphs by name or as objects: `build` makes a Network from a name, a Topology, a networkx graph or a matrix."""

from gadget_svm.topologies.base import Topology
from gadget_svm.topologies.registry import TOPOLOGIES, build, check_name, labels_of, nodes_of

__all__ = ["TOPOLOGIES", "Topology", "build", "check_name", "labels_of", "nodes_of"]
