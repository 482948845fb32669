"""The evaluator process: whatever an expression costs, the process that asks goes on, and the others' answers stand."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from runs.processes import isolation
from tests.support.stack import eventually
from tests.support.triggers import HOURS
from triggers.matching.expressions.cel import MISSING, Question
from triggers.matching.expressions.evaluator import Evaluator, EvaluatorUnavailable, Limits, Subject

ENVELOPE = {"id": "1", "type": "t", "source": "s", "subject": "", "time": "2026-01-01T00:00:00+00:00"}
SHORT = Limits(each=0.3, total=3.0)
QUADRATIC = "event.data.items.filter(x, x > 0).size() > 3"


@pytest.fixture
def evaluator() -> Iterator[Evaluator]:
    with Evaluator() as evaluator:
        yield evaluator


def questions(*filters: str) -> list[Question]:
    return [Question(filter=filter) for filter in filters]


def test_answers_are_those_of_the_library(evaluator: Evaluator) -> None:
    subject = Subject(envelope=ENVELOPE, data='{"n": 2, "at": "x"}')
    question = Question(filter="event.data.n == 2", key="event.data.n", input={"at": "event.time", "n": "event.data.n"})

    [answer] = evaluator.answers(subject, [question])

    assert (answer.passes, answer.key, answer.error) == (True, "2", "")
    assert answer.input == {"at": "2026-01-01T00:00:00+00:00", "n": 2}


def test_the_helper_process_reads_fields_of_the_data(evaluator: Evaluator) -> None:
    subject = Subject(envelope=ENVELOPE, data='{"a": {"b": 1.5, "c": [1]}, "long": "%s"}' % ("x" * 3000))
    paths = [("data", "a", "b"), ("data", "a", "c"), ("data", "a", "d"), ("data", "long")]

    assert evaluator.fields(subject, paths) == [1.5, None, MISSING, None]
    assert evaluator.answers(subject, questions("event.data.a.b > 1.0"))[0].passes


def test_an_expression_that_would_take_hours_is_an_error_and_the_others_are_answered(evaluator: Evaluator) -> None:
    found = evaluator.answers(Subject(envelope=ENVELOPE), questions("true", HOURS, "event.type == 't'", "false"), SHORT)

    assert [answer.passes and not answer.error for answer in found] == [True, False, True, False]
    assert "longer than 0.3 s" in found[1].error and "WAKEFUL_MATCH_TIME" in found[1].error


def test_all_expressions_of_an_event_share_a_time_limit(evaluator: Evaluator) -> None:
    found = evaluator.answers(Subject(envelope=ENVELOPE), questions(*[HOURS] * 30, "true"), Limits(each=0.3, total=0.6))

    assert all("WAKEFUL_MATCH_TOTAL" in answer.error for answer in found[2:])


def test_a_trigger_that_overran_again_and_again_gets_a_tenth_of_the_time(evaluator: Evaluator) -> None:
    for _ in range(3):
        evaluator.answers(Subject(envelope=ENVELOPE), questions(HOURS), SHORT)

    [slow, other] = evaluator.answers(Subject(envelope=ENVELOPE), questions(HOURS, "true"), SHORT)

    assert "longer than 0.03 s" in slow.error
    assert other.passes and not other.error


def test_a_trigger_that_goes_on_overrunning_is_not_evaluated_on_events_of_that_size(evaluator: Evaluator) -> None:
    short = Limits(each=0.02, total=3.0)
    found = [evaluator.answers(Subject(envelope=ENVELOPE), questions(HOURS), short)[0] for _ in range(11)]
    [refused, other] = evaluator.answers(Subject(envelope=ENVELOPE), questions(HOURS, "true"), short)
    [larger] = evaluator.answers(Subject(envelope=ENVELOPE, data=f'"{"a" * 9000}"'), questions(HOURS), short)

    assert "not evaluated" not in found[9].error and "not evaluated" in found[10].error
    assert "not evaluated" in refused.error and other.passes and not other.error
    assert "longer than 0.02 s" in larger.error


def test_a_long_list_is_an_error_of_its_event_alone(evaluator: Evaluator) -> None:
    long, short = (f'{{"items": [{", ".join("1" * count)}]}}' for count in (20_000, 5))

    [slow] = evaluator.answers(Subject(envelope=ENVELOPE, data=long), questions(QUADRATIC), SHORT)
    [quick] = evaluator.answers(Subject(envelope=ENVELOPE, data=short), questions(QUADRATIC), SHORT)

    assert slow.is_unaffordable and quick.passes and not quick.error


def test_data_nested_too_deeply_is_an_error(evaluator: Evaluator) -> None:
    subject = Subject(envelope=ENVELOPE, data="[" * 600 + "]" * 600)

    [reading, other] = evaluator.answers(subject, questions("event.data == event.data", "event.type == 't'"))

    assert "deeper than 100 levels" in reading.error
    assert other.passes and not other.error


def test_an_expression_over_the_memory_limit_fails_alone(evaluator: Evaluator) -> None:
    doubling = "[1,1,1,1,1,1,1,1]" + ".map(x, [x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x])" * 7
    [large, other] = evaluator.answers(Subject(envelope=ENVELOPE), questions(f"{doubling}.size() == 1", "true"), SHORT)

    assert large.error or not large.passes
    assert other.passes and not other.error


def test_a_killed_helper_process_is_replaced_and_answers(evaluator: Evaluator) -> None:
    evaluator.answers(Subject(envelope=ENVELOPE), questions("true"))
    assert evaluator.process
    evaluator.process.kill()

    [answer] = evaluator.answers(Subject(envelope=ENVELOPE), questions("event.type == 't'"))

    assert answer.passes and not answer.error


def test_an_event_that_ends_the_helper_each_time_is_an_error(
    evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = "import os; from triggers.matching.expressions import evaluator_process as it; real = it.answer\n"
    start += (
        "it.answer = lambda question, *a, **k: os.abort() if question.filter == 'false' else real(question, *a, **k)\n"
    )
    monkeypatch.setattr(isolation, "START", isolation.START.replace("begin(*", f"{start}begin(*"))

    found = evaluator.answers(Subject(envelope=ENVELOPE), questions("true", "false", "event.type == 't'"))

    assert [bool(answer.error) for answer in found] == [False, True, False]
    assert "SIGABRT" in found[1].error


def test_a_helper_that_cannot_start_is_no_events_fault(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "START", "raise SystemExit(3)")

    with pytest.raises(EvaluatorUnavailable):
        evaluator.answers(Subject(envelope=ENVELOPE), questions("true"))


PARENT = """
import os, sys
from django.conf import settings
settings.configure()
from triggers.matching.expressions.evaluator import Evaluator, Limits, Subject
from triggers.matching.expressions.cel import Question
evaluator = Evaluator()
limits = Limits(each=1, total=1)
evaluator.answers(Subject(envelope=%r), [Question(filter="true")], limits)
print(evaluator.process.pid, flush=True)
sys.stdin.read()
"""


def test_a_helper_ends_with_its_parent_however_that_ends() -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT % ENVELOPE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout
    pid = int(parent.stdout.readline())
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()

    eventually(lambda: not Path(f"/proc/{pid}").exists() or "\nState:\tZ" in Path(f"/proc/{pid}/status").read_text())


def test_the_helper_knows_no_setting_and_no_secret(evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "sesame")
    evaluator.answers(Subject(envelope=ENVELOPE), questions("true"))
    assert evaluator.process

    assert b"sesame" not in Path(f"/proc/{evaluator.process.pid}/environ").read_bytes()


def test_several_threads_share_one_helper_process(evaluator: Evaluator) -> None:
    found: list[bool] = []

    def ask() -> None:
        [answer] = evaluator.answers(Subject(envelope=ENVELOPE), questions("event.type == 't'"))
        found.append(answer.passes and not answer.error)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == [True] * 8
