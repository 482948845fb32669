"""A child process of a worker: its preparation, and its end with its parent."""

import os
import signal
import sys
import threading
import time
from typing import Any

from celery.signals import task_postrun, task_prerun, worker_process_init, worker_process_shutdown

from agents import telemetry
from runs.queues.doorbell import DOORBELL
from runs.worker.printed import print_without_secrets

_is_child = False
_at_sigterm: Any = signal.SIG_DFL  # what the pool has set


@worker_process_init.connect
def prepare_child(**kwargs: Any) -> None:
    """Let a child die with its parent, and print no secrets."""
    global _is_child
    _is_child = True
    die_with_parent()
    print_without_secrets()


@task_prerun.connect
def leave_sigterm_to_parent(task: Any, **kwargs: Any) -> None:
    """It may reach a whole group of processes, and the parent decides what happens to a run. Between runs a child ends by it, as Celery
    expects where its pool shrinks."""
    global _at_sigterm
    if _is_child and task.name == DOORBELL:
        _at_sigterm = signal.signal(signal.SIGTERM, signal.SIG_IGN)


@task_postrun.connect
def end_at_sigterm(task: Any, **kwargs: Any) -> None:
    if _is_child and task.name == DOORBELL:
        signal.signal(signal.SIGTERM, _at_sigterm)


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
