"""A network of its own, in which this process may pull cables: Linux, with iproute2 and namespaces of ordinary users.

with far_network() as far:             # in a process that `in_a_network` has started
    subprocess.run([*far.within, …])   # reaches this machine at far.address
    far.pull()                         # nothing arrives any more: no answer, no reset
    far.plug()
"""

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

from tests.support.servers import surroundings

HERE = "TEST_NETWORK"  # set in a process that has a network of its own
SERVERS = ("DATABASE_URL", "REDIS_URL", "CELERY_BROKER_URL")
UNSHARE = ["unshare", "--map-current-user", "--keep-caps", "--net"]
NEAR, FAR, BITS = "10.99.0.1", "10.99.0.2", 24


@cache
def can_make_networks() -> bool:
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return False
    make = [*UNSHARE, "ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
    return subprocess.run(make, capture_output=True, check=False).returncode == 0


def in_a_network(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Execute a command in a network of its own."""
    up = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    # Servers of this process are out of its reach.
    env = {name: value for name, value in surroundings().items() if name not in SERVERS} | {HERE: "1"}
    return subprocess.run([*UNSHARE, *up, *command], env=env, capture_output=True, text=True, check=False)


def is_in_a_network() -> bool:
    return HERE in os.environ


class Far:
    """Another network, at the other end of a cable."""

    address = NEAR

    def __init__(self, pid: int) -> None:
        self.within = ["nsenter", f"--net=/proc/{pid}/ns/net"]

    def pull(self) -> None:
        _do("ip", "link", "set", "near", "down")

    def plug(self) -> None:
        _do("ip", "link", "set", "near", "up")


@contextmanager
def far_network() -> Iterator[Far]:
    assert is_in_a_network()
    with subprocess.Popen(["unshare", "--net", "sleep", "infinity"]) as holder:
        try:
            far = Far(holder.pid)
            while os.readlink(f"/proc/{holder.pid}/ns/net") == os.readlink("/proc/self/ns/net"):
                pass
            _do("ip", "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(holder.pid))
            _do("ip", "address", "add", f"{NEAR}/{BITS}", "dev", "near")
            _do(*far.within, "ip", "address", "add", f"{FAR}/{BITS}", "dev", "far")
            for command in (["ip"], [*far.within, "ip"]):
                _do(*command, "link", "set", "far" if len(command) > 1 else "near", "up")
            _do(*far.within, "ip", "link", "set", "lo", "up")
            yield far
        finally:
            holder.kill()


def _do(*command: str) -> None:
    subprocess.run(command, check=True)
