"""Wait for descriptors. select() refuses those from 1,024 on, which a process with many sockets has."""

import math
import select
from collections.abc import Iterable


def readable(descriptors: Iterable[int], timeout: float) -> set[int]:
    """Those that can be read, or whose other end is gone, as soon as there is one, or after `timeout` seconds."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(timeout * 1000))}
