"""Wait for file descriptors, also for those from 1,024 on, which select() refuses."""

import math
import select
from collections.abc import Iterable


def readable(descriptors: Iterable[int], timeout: float) -> set[int]:
    """Wait until a descriptor is readable or its other end is closed, at most `timeout` seconds; return all such descriptors."""
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return {descriptor for descriptor, _ in poll.poll(math.ceil(timeout * 1000))}
