"""What the children of a worker do, in memory that all of its processes share: a byte for each child, and one for a shutdown.

Each child writes only its own byte. It is no lock: a reader may see what was true a moment ago.
"""

import mmap
import os
from typing import Any

from billiard.process import current_process
from celery.signals import task_postrun, task_prerun, worker_process_init, worker_process_shutdown

FREE, BUSY, STAYS = 0, 1, 2
SIZE = 4096
STOPS = SIZE - 1  # the byte for a shutdown


class Board:
    def __init__(self, children: int = 0) -> None:
        self.memory = mmap.mmap(-1, SIZE)
        self.children = min(children, STOPS)
        self.place: int | None = None
        self.pid = 0

    def _place(self) -> int | None:
        """The place of this process, if it is a child of the pool."""
        if self.pid != os.getpid():
            index = getattr(current_process(), "index", None)
            self.place = index if isinstance(index, int) and 0 <= index < self.children else None
            self.pid = os.getpid()
        return self.place

    def note(self, state: int) -> None:
        if (place := self._place()) is not None:
            self.memory[place] = state

    def stop(self) -> None:
        """No child may stay any more."""
        self.memory[STOPS] = 1

    @property
    def may_stay(self) -> bool:
        """Is another child free, and does no other stay? Then neither other queues nor tasks of the user's own wait for this one."""
        if (place := self._place()) is None or self.memory[STOPS]:
            return False
        others = self.memory[:place] + self.memory[place + 1 : self.children]
        return FREE in others and STAYS not in others

    @property
    def has_one_that_stays(self) -> bool:
        return STAYS in self.memory[: self.children]


board = Board()


def begin(children: int) -> None:
    """In the parent, before it forks its children: a process that was itself forked must not share the board of another worker."""
    global board
    board = Board(children)


@worker_process_init.connect
def note_birth(**kwargs: Any) -> None:
    board.note(FREE)


@worker_process_shutdown.connect  # a pool that shrinks does not replace it
@task_prerun.connect
def note_task(**kwargs: Any) -> None:
    board.note(BUSY)


@task_postrun.connect
def note_end_of_task(task: Any, **kwargs: Any) -> None:
    if not task.request.is_eager:  # it is a part of the task that has called it, which goes on
        board.note(FREE)
