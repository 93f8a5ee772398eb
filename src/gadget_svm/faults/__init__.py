"""What can go wrong between nodes: wrappers of `exchange`, by name, composable; the first is nearest the nodes."""

from collections.abc import Iterable
from typing import Any

from gadget_svm.faults.links import Bounce, Delay, Loss, Partition
from gadget_svm.faults.nodes import Churn, Crash, Slow
from gadget_svm.faults.wrapping import Fault, World
from gadget_svm.mail import Delivery, Exchange
from gadget_svm.names import lookup

FAULTS: dict[str, type[Any]] = {
    "loss": Loss,
    "bounce": Bounce,
    "delay": Delay,
    "partition": Partition,
    "crash": Crash,
    "churn": Churn,
    "slow": Slow,
}


def make_faults(spec: "Fault | str | dict[str, Any] | Iterable[Fault | str] | None") -> list[Fault]:
    """Faults from instances, from names with a main value ("loss=0.1"), or from {"loss": 0.1, "crash": {...}}."""
    if spec is None:
        return []
    if isinstance(spec, dict):
        return [_named(name, value) for name, value in spec.items()]
    if isinstance(spec, str) or not isinstance(spec, Iterable):
        spec = [spec]
    return [_parse(item) if isinstance(item, str) else item for item in spec]


def _parse(text: str) -> Fault:
    name, _, value = text.partition("=")
    return _named(name.strip(), float(value) if value else None)


def _named(name: str, value: Any) -> Fault:
    kind = lookup("fault", name, FAULTS)
    arguments, named = ((), value) if isinstance(value, dict) else (() if value is None else (value,), {})
    fault: Fault = kind(*arguments, **named)
    return fault


def wrap_all(faults: Iterable[Fault], world: World) -> Exchange:
    """An exchange in this process that suffers all the faults."""
    exchange: Exchange = Delivery
    for fault in faults:
        exchange = fault.wrap(exchange, world)
    return exchange


__all__ = [
    "FAULTS", "Bounce", "Churn", "Crash", "Delay", "Fault", "Loss", "Partition", "Slow", "World", "make_faults",
    "wrap_all",
]  # fmt: skip
