"""The systems that GADGET is compared with, a function each: it trains on rows in one place and returns a `Fit`.

A node on its own ("local-only") is `pegasos` on the node's shard.
"""
