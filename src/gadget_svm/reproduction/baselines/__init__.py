"""The systems that GADGET is compared with. Each is a function that trains on rows in one place and returns a `Fit`.

A node on its own ("local-only") is `pegasos` on the node's shard.
"""
