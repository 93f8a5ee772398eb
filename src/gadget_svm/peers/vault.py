"""What of a peer survives a restart, and what a checkpoint must fit to be gone on from."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gadget_svm.peers import checkpoint
from gadget_svm.peers.charter import Charter, disagreements
from gadget_svm.peers.discretion import Discretion
from gadget_svm.peers.envelope import decode_statistics, encode_statistics
from gadget_svm.peers.learner import Learner
from gadget_svm.peers.legacies import Legacy
from gadget_svm.peers.messages import Kept, Malformed, Statistics
from gadget_svm.peers.scaling import Scaling


class VaultError(RuntimeError):
    """A state that does not belong to this peer as it is now, and what to do about it."""


@dataclass(frozen=True)
class NodeState:
    """What a peer goes on from."""

    path: Path
    incarnation: int
    addresses: dict[str, str]  # of those it knew
    statistics: Statistics | None
    scaling: str
    arrays: Mapping[str, Any]
    learner: Mapping[str, Any] | None
    kept: Mapping[str, Legacy]  # who has left, and still counts
    numbers: Mapping[str, int]  # the last incarnation known of everybody
    voices: Mapping[int, int]  # and that of which the learner has heard letters, by the sender's number
    warnings: tuple[str, ...]


def pack(
    charter: Charter,
    rows: str,
    incarnation: int,
    addresses: dict[str, str],
    scaling: Scaling,
    learner: Learner | None,
    discretion: Discretion | None = None,
    kept: Mapping[str, Legacy] | None = None,
    numbers: Mapping[str, int] | None = None,
    voices: Mapping[int, int] | None = None,
    *,
    learned: bool = True,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays and plain values to save; copies, so that the peer may go on meanwhile.

    ``learned``: or else only who it is, so that it can start again on other terms. A VaultError if what was learned is
    not made of numbers any more: to have saved that would be to go on from it for ever.
    """
    arrays: dict[str, Any] = {}
    about: dict[str, Any] = {
        "charter": charter.text(), "rows": rows, "incarnation": incarnation, "addresses": addresses,
        "scaling": scaling.digest.hex(), "saved": time.time(), "learner": None,
        "kept": {
            name: [f"{each.serial:x}", each.incarnation, [list(part) for part in each.others]]
            for name, each in (kept or {}).items()
        },
        "numbers": dict(numbers or {}),
        "voices": {str(number): incarnation for number, incarnation in (voices or {}).items()},
    }  # fmt: skip
    if not learned:
        return arrays, {**about, "kept": {}}
    if learner is not None:
        state, about["learner"] = learner.state()
        arrays |= {name: np.array(value) for name, value in state.items()}
    if discretion is not None:
        arrays |= {f"discretion.{name}": value for name, value in discretion.state().items()}
    if scaling.kind != "none" and scaling.settled:
        arrays["statistics"] = np.frombuffer(encode_statistics(scaling.message()), dtype=np.uint8)
    if spoilt := _spoilt(arrays):
        raise VaultError(f"what was learned is not finite any more ({spoilt}): it is not saved, the last state stays")
    return arrays, about


def _spoilt(arrays: Mapping[str, Any]) -> str:
    """Which arrays hold anything but finite numbers."""
    return ", ".join(name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all())


def recall(folder: Path, charter: Charter, rows: str) -> NodeState | None:
    """The last state saved in the folder; None if there is none, a VaultError if it is of other terms or rows,
    or if it is not made of numbers: no step leads from there to a model."""
    found = checkpoint.load(folder)
    if found is None:
        return None
    about = found.about
    fresh = f"or start anew with --fresh, which sets the state in {folder} aside"
    try:
        differing = disagreements(charter, Charter.parse(about["charter"]), "peer.toml", "the checkpoint")
        learned = bool(about["learner"] and about["learner"]["t"]) or "statistics" in found.arrays
        if not learned and (differing or about["rows"] != rows):  # as by one that was refused: only who it is counts
            who = int(about["incarnation"])
            return NodeState(found.path, who, {}, None, "", {}, None, {}, {}, {}, tuple(found.warnings))
        if differing:
            raise VaultError(f"the state in {folder} is of another run: {'; '.join(differing)}; {fresh}")
        if about["rows"] != rows:
            raise VaultError(
                f"the rows have changed since the state in {folder} was saved, and what was learned belongs to the old "
                f"ones: put the old file back, {fresh}"
            )
        if spoilt := _spoilt(found.arrays):
            raise VaultError(
                f"the state in {found.path} is not finite ({spoilt}): move that file away to go on from the one before "
                f"it, if there is one, {fresh}"
            )
        kept = found.arrays.get("statistics")
        statistics = None if kept is None else decode_statistics(kept.tobytes(), charter.features)
        return NodeState(
            found.path, int(about["incarnation"]), dict(about["addresses"]), statistics, str(about["scaling"]),
            found.arrays, about["learner"], _legacies(about["kept"]),
            {str(name): int(number) for name, number in about["numbers"].items()},
            {int(number): int(incarnation) for number, incarnation in about.get("voices", {}).items()},
            tuple(found.warnings),
        )  # fmt: skip
    except (AttributeError, KeyError, TypeError, ValueError, Malformed) as error:
        raise VaultError(f"the state in {folder} is of another version ({error!r}): {fresh}") from error


def _legacies(kept: Mapping[str, Any]) -> dict[str, Legacy]:
    return {
        str(name): Legacy(int(serial, 16), int(incarnation), tuple(Kept(str(other), int(n)) for other, n in others))
        for name, (serial, incarnation, others) in kept.items()
    }


def recall_sent(memory: NodeState, discretion: Discretion) -> None:
    """Take up what was sent before; a state of a version that did not keep it has nothing to say."""
    if "discretion.sent" in memory.arrays:
        discretion.restore({name: memory.arrays[f"discretion.{name}"] for name in ("sent", "sent_to")})


def set_aside(folder: Path) -> list[Path]:
    """Rename what is saved in the folder, so that the next start begins anew and nothing is lost."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    saved = [folder / slot for slot in checkpoint.SLOTS if (folder / slot).is_file()]
    return [path.rename(path.with_name(f"{path.name}.former-{stamp}")) for path in saved]
