"""When a child of a worker may stay in its task: others of its worker must be free for everything else."""

import os

import pytest
from celery import shared_task

from runs.worker import board as boards
from runs.worker.board import BUSY, FREE, STAYS, Board


def board_of(*others: int, children: int = 0) -> Board:
    """The board, as the child at place 0 has it."""
    board = Board(children or len(others) + 1)
    board.place, board.pid = 0, os.getpid()
    for place, state in enumerate(others, start=1):
        board.memory[place] = state
    return board


@pytest.mark.parametrize(
    ("others", "may_stay"),
    [((FREE,), True), ((BUSY,), False), ((), False), ((BUSY, FREE), True), ((FREE, STAYS), False), ((STAYS,), False)],
)
def test_a_child_stays_only_while_another_is_free_and_no_other_stays(others: tuple[int, ...], may_stay: bool) -> None:
    assert board_of(*others).may_stay is may_stay


def test_no_child_stays_once_the_worker_stops() -> None:
    board = board_of(FREE)
    board.stop()

    assert not board.may_stay


def test_a_process_that_is_no_child_of_the_pool_does_not_stay() -> None:
    assert not Board(2).may_stay


def test_a_child_that_calls_a_task_within_its_own_is_not_free_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else another child would stay, and what comes next would wait for it."""

    @shared_task
    def part() -> int:
        return boards.board.memory[0]

    monkeypatch.setattr(boards, "board", board_of(FREE))
    boards.board.note(BUSY)

    assert part.apply().get() == BUSY
    assert boards.board.memory[0] == BUSY
