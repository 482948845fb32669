"""Cut sessions off whose statement gets no answer any more. TCP notices a server that has vanished (the keepalives in the settings), but
not a proxy or a pooler on the way that stands still, or has lost a session: its host goes on to acknowledge, and a process would wait for
ever. Every statement of the watched sessions has a `statement_timeout` (`runs.db.listen.set_timeouts`), so an answer that is later than
that will not come; the process sees its connection end, and connects again. On Linux only.
"""

import os
import socket
import struct
import sys
import threading
from typing import Any
from weakref import WeakSet

import structlog
from psycopg.pq import TransactionStatus

log = structlog.get_logger(__name__)

LONGEST = 45.0  # seconds: statement_timeout and a margin
LOOK_EVERY = 15.0
TCP_INFO_SIZE, LAST_SENT, LAST_RECEIVED = 104, 44, 52  # of struct tcp_info in linux/tcp.h; milliseconds ago

_watched: WeakSet[Any] = WeakSet()
_starting = threading.Lock()
_thread: threading.Thread | None = None


def watch(driver: Any) -> None:
    """Watch a connection of psycopg's as long as it exists. A fork must watch its own again."""
    global _thread
    if sys.platform != "linux":
        return
    with _starting:
        _watched.add(driver)
        if _thread is None or not _thread.is_alive():
            _thread = threading.Thread(target=_look_for_ever, name="wakeful-standstill", daemon=True)
            _thread.start()


def cut_off_silent() -> None:
    """Cut the sessions off that have waited for an answer for too long."""
    for driver in list(_watched):
        if not driver.closed and driver.info.transaction_status == TransactionStatus.ACTIVE:
            _cut_off_if_silent(driver.fileno())


def _look_for_ever() -> None:
    pause = threading.Event()
    while not pause.wait(LOOK_EVERY):
        try:
            cut_off_silent()
        except Exception:
            # A process boundary. The connection may have been closed meanwhile.
            log.info("standstill.look_failed", exc_info=True)


def _cut_off_if_silent(descriptor: int) -> None:
    with socket.socket(fileno=os.dup(descriptor)) as end:
        if end.family not in (socket.AF_INET, socket.AF_INET6):
            return
        info = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_SIZE)
        silent = min(struct.unpack_from("I", info, place)[0] for place in (LAST_SENT, LAST_RECEIVED)) / 1000
        if silent > LONGEST:
            log.warning("database.stands_still", seconds=round(silent))
            end.shutdown(socket.SHUT_RDWR)
