"""Graphs by name: `build` makes a Network from a name, a networkx graph or an adjacency matrix."""

from gadget_svm.topologies.registry import TOPOLOGIES, Topology, build, check_name, labels_of, nodes_of

__all__ = ["TOPOLOGIES", "Topology", "build", "check_name", "labels_of", "nodes_of"]
