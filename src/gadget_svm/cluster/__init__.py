"""The nodes as actors of a Ray cluster."""
