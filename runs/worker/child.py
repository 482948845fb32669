"""A child process of a worker: its preparation, and its end with its parent."""

import os
import signal
import sys
import threading
import time
from typing import Any

from celery.signals import worker_process_init, worker_process_shutdown

from agents import telemetry
from runs.worker.printed import print_without_secrets


@worker_process_init.connect
def prepare_child(**kwargs: Any) -> None:
    """Let a child die with its parent, ignore SIGTERM, as the parent decides what happens to its run, and print no secrets."""
    die_with_parent()
    print_without_secrets()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@worker_process_shutdown.connect
def end_child(**kwargs: Any) -> None:
    telemetry.flush()


def die_with_parent() -> None:
    # For the kernel, the parent is the thread that forked. Without an event loop (some transports), the pool forks replacements in
    # a thread that ends at a warm shutdown, before the runs of these children.
    was_forked_by_main = isinstance(threading.current_thread(), threading._MainThread)  # type: ignore[attr-defined]
    if sys.platform == "linux" and was_forked_by_main:
        import ctypes

        PR_SET_PDEATHSIG = 1
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_exit_when_orphaned, args=(os.getppid(),), daemon=True).start()


def _exit_when_orphaned(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)
