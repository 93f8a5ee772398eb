"""Parts that another package would offer through entry points."""

from importlib.metadata import EntryPoint


def offer(monkeypatch, registry, **parts):
    """Let a registry find these classes, by name, as if an installed package named them."""
    found = {
        name.replace("_", "-"): EntryPoint(name, f"{part.__module__}:{part.__name__}", registry.group)
        for name, part in parts.items()
    }
    monkeypatch.setattr(registry, "_members", dict(registry._members))  # a part that was loaded is kept there
    monkeypatch.setattr(registry, "_outside", found)
