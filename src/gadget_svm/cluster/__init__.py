"""Runs the nodes in actors on a Ray cluster."""
