"""One open stream to an identified peer: the queue of frames to send, and batches of them.

Small frames that wait for the same link travel as one message of gRPC, one after the other: a call of gRPC costs more
than all else that happens to a small frame.
"""

import asyncio
from collections import deque

from gadget_svm.peers.process.transport import Stream
from gadget_svm.peers.security.handshake import Handshake
from gadget_svm.peers.wire.fields import walk
from gadget_svm.peers.wire.limits import FIELDS, MalformedError

MAX_QUEUED_FRAMES = 1024
MIN_QUEUED_BYTES = 8 << 20  # or four of the largest frames
BATCH_FRAMES, BATCH_BYTES = FIELDS, 64 << 10


class Link:
    """One open stream to a peer that was identified. Owns the queue of messages to send."""

    def __init__(
        self, number: int, stream: Stream, name: str, certificates: tuple[bytes, bytes], handshake: Handshake,
        frame_bytes: int,
    ) -> None:  # fmt: skip
        self.number, self.stream, self.name, self.handshake = number, stream, name, handshake
        self.certificates = certificates  # of the other end, and our own at the time
        self.greeted = False  # whether the other end has proved its certificate
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue: deque[bytes] = deque()
        self._queued_bytes, self._max_bytes = 0, max(MIN_QUEUED_BYTES, 4 * frame_bytes)
        self._filled = asyncio.Event()

    def push(self, data: bytes) -> bool:
        """Queue a message; False if there is no room."""
        if len(self._queue) >= MAX_QUEUED_FRAMES or self._queued_bytes + len(data) > self._max_bytes:
            return False
        self._queue.append(data)
        self._queued_bytes += len(data)
        self._filled.set()
        return True

    def close(self, error: str = "") -> None:
        """Close after what is queued; with an error, at once. Idempotent."""
        if not self.closed.done():
            self.closed.set_result(error)
            self._filled.set()

    async def write_queue(self) -> None:
        """Write what is queued, until the link is closed and the queue is empty."""
        while self._queue or not self.closed.done():
            while self._queue:
                data = self._take_batch()
                await self.stream.write(data)
                self._queued_bytes -= len(data)
            self._filled.clear()
            if not self.closed.done():
                await self._filled.wait()

    def _take_batch(self) -> bytes:
        """Take the first frame from the queue, and those after it that fit into the same batch."""
        batch = [self._queue.popleft()]
        size = len(batch[0])
        while self._queue and len(batch) < BATCH_FRAMES and size + len(self._queue[0]) <= BATCH_BYTES:
            batch.append(self._queue.popleft())
            size += len(batch[-1])
        return b"".join(batch)


def split_frames(data: bytes) -> list[bytes]:
    """Return the frames in a message of gRPC; one that is larger than a batch may be is a single frame."""
    if len(data) > BATCH_BYTES:
        return [data]
    frames = [data[field.tag : field.end] for field in walk(data, 0, len(data))]
    if not frames or sum(map(len, frames)) != len(data):
        raise MalformedError("garbage", "a message without a frame, or with more than frames")
    return frames
