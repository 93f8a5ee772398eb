"""What a peer writes while it leaves, renames itself or fails: in order, all of it, and before the folder is free."""

import asyncio
import threading
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("grpc")
pytest.importorskip("cryptography")
pytest.importorskip("pydantic")
pytest.importorskip("prometheus_client")
from gadget_svm.estimator.model_file import load_model
from gadget_svm.peers import checkpoint, keeping
from support.peer_kit import goes_on, listening, until


class Disk:
    """One on which a write, the next after `hang`, takes until `go_on`: of a state or of a model."""

    def __init__(self, monkeypatch):
        self.busy, self._free = threading.Event(), threading.Event()
        self._hangs = threading.Semaphore(0)
        for module, name in ((checkpoint, "fill"), (keeping, "export")):
            monkeypatch.setattr(module, name, self._slowed(getattr(module, name)))

    def _slowed(self, write):
        def wait_and_write(*args, **options):
            if self._hangs.acquire(blocking=False):
                self.busy.set()
                assert self._free.wait(120)
            return write(*args, **options)

        return wait_and_write

    def hang(self):
        self._hangs.release()

    def go_on(self):
        self._free.set()


@pytest.fixture
def disk(monkeypatch):
    found = Disk(monkeypatch)
    yield found
    found.go_on()


def in_use(folder):
    """Whether another process would be turned away."""
    try:
        checkpoint.Lock.acquire(folder).release()
    except checkpoint.CheckpointError:
        return True
    return False


async def started(peer):
    live = asyncio.create_task(peer.live())
    await until(lambda: live.done() or listening(peer))
    return live


async def later(*tasks):
    """They have had their chance to end."""
    await asyncio.wait(tasks, timeout=1.5)


def saved(peer):
    return checkpoint.load(peer.config.peer.state).about


def test_a_stop_during_a_slow_checkpoint_leaves_the_last_state_and_holds_the_folder_until_then(town, disk):
    peer = town.peer("a")

    async def main():
        live = await started(peer)
        disk.hang()
        peer.unsaved = True
        await until(disk.busy.is_set)
        await goes_on(peer, 20)
        peer.stop("now")
        await later(live)
        held = in_use(peer.config.peer.state)
        disk.go_on()
        await live
        assert held

    asyncio.run(main())
    assert saved(peer)["learner"]["t"] == peer.ticks
    assert not in_use(peer.config.peer.state)


def test_a_stop_while_a_model_is_written_slowly_leaves_the_last_model(town, disk):
    peer = town.peer("a", export=0.1)

    async def main():
        live = await started(peer)
        disk.hang()
        await until(disk.busy.is_set)
        await goes_on(peer, 20)
        peer.stop("now")
        await later(live)
        disk.go_on()
        await live

    asyncio.run(main())
    assert load_model(peer.config.peer.model).n_iter_ == peer.ticks


def test_a_peer_that_fails_during_a_slow_checkpoint_holds_the_folder_until_it_is_written(town, disk, monkeypatch):
    """Though it has no last state to save: its weights are no numbers."""
    peer = town.peer("a")
    monkeypatch.setattr(peer.study, "_successor", lambda: 1 / 0)

    async def main():
        live = await started(peer)
        disk.hang()
        peer.unsaved = True
        await until(disk.busy.is_set)
        async with peer.study.between_ticks:
            peer.learner.block.w[...] = np.nan
        await until(lambda: "not finite" in peer.trouble.get("checkpoint", ""))
        await later(live)
        held = in_use(peer.config.peer.state)
        disk.go_on()
        with pytest.raises(ZeroDivisionError):
            await live
        assert held

    asyncio.run(main())
    assert not in_use(peer.config.peer.state)


def test_an_older_state_never_takes_the_place_of_a_newer_one(town, disk):
    """As that of before an incarnation was raised: a restart with the lower number would not be heard."""
    peer = town.peer("a")

    async def main():
        peer.go_on_from(None)
        disk.hang()
        slow = asyncio.create_task(peer.keeper.save())
        await until(disk.busy.is_set)
        me = peer.members.me
        peer.members.me = replace(me, incarnation=me.incarnation + 7)
        quick = asyncio.create_task(peer.keeper.save())
        await later(quick)
        disk.go_on()
        await asyncio.gather(slow, quick)

    asyncio.run(main())
    assert saved(peer)["incarnation"] == peer.members.me.incarnation
