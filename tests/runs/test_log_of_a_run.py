"""What a body writes to `run.log` is kept with its run, within bounds, in the transactions that the run has anyway."""

import json
from typing import Any

import pytest
from django.db import transaction
from django.test import Client

from agents import AgentRun
from agents.exceptions import Permanent, Retry
from agents.kernel import log_lines
from agents.kernel.log_lines import LogLines
from agents.kernel.redaction import MARK, know
from runs.db.sql import execute
from runs.models import Run, RunLog
from runs.retention.payloads import remove_payloads
from runs.retention.prune import delete_runs
from runs.transitions import entries
from tests.support.durable import Lab
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db(transaction=True)
ATOMIC: dict[str, Any] = {"declared": {"durable": False}, "policy": {"durable": False, "retries": 0}}


@pytest.fixture
def lab(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(monkeypatch)


def lines_of(run: Run) -> list[tuple[int, str, str]]:
    """Of each line its claim, level and text with values."""
    return [
        (chunk.epoch, level, f"{text} {values}".strip())
        for chunk in RunLog.objects.filter(run_id=run.pk).order_by("epoch", "number")
        for _, level, text, values, _ in chunk.content
    ]


def test_lines_of_a_success_are_kept(lab: Lab) -> None:
    run = lab.run(lambda run: run.log.bind(order=312).warning("picked %s", "bad-1", sku=7), **ATOMIC)

    assert run.status == "succeeded"
    assert lines_of(run) == [(1, "warning", "picked bad-1 order=312 sku=7")]


def test_lines_of_a_body_that_was_rolled_back_are_kept_with_its_failure(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.log.info("picking")
        try:
            raise KeyError("sku")
        except KeyError:
            run.log.exception("no shelf")
        raise Permanent("no")

    run = lab.run(body, **ATOMIC)

    assert run.status == "failed"
    assert [(level, text) for _, level, text in lines_of(run)] == [("info", "picking"), ("exception", "no shelf")]
    assert "KeyError: 'sku'" in RunLog.objects.get().content[1][4]


def test_each_attempt_keeps_its_own(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.log.info("try", number=run.attempt)
        if run.attempt == 1:
            raise Retry(after=0)

    run = lab.run(body, declared={"durable": False}, policy={"durable": False, "retries": 1})

    assert [(epoch, text) for epoch, _, text in lines_of(run)] == [(1, "try number=1"), (2, "try number=2")]


def test_a_replay_of_a_durable_body_keeps_no_line_twice(lab: Lab) -> None:
    def body(run: AgentRun) -> None:
        run.log.info("begin")
        run.step("one", lambda: run.log.info("in the step"))
        run.log.info("between")
        run.sleep(60)
        run.log.info("woken")
        run.step("two", int, key="k")
        run.log.info("end")

    run = lab.later(lab.run(body))

    assert run.status == "succeeded"
    assert [text for _, _, text in lines_of(run)] == ["begin", "in the step", "between", "woken", "end"]


def test_a_run_that_logs_nothing_has_no_row(lab: Lab) -> None:
    lab.run(lambda run: run.step("one", int))

    assert not RunLog.objects.exists()


def test_an_agent_that_keeps_no_content_keeps_no_lines(lab: Lab) -> None:
    lab.run(lambda run: run.log.info("of a person"), policy={"keep_content": False})

    assert not RunLog.objects.exists()


def test_a_line_below_the_level_is_not_kept(lab: Lab) -> None:
    lab.run(lambda run: run.log.debug("fine"), **ATOMIC)

    assert not RunLog.objects.exists()


def test_what_postgresql_cannot_store_and_secrets_are_not_in_a_line(lab: Lab) -> None:
    know("hunter2-of-the-depot")
    run = lab.run(lambda run: run.log.info("a\x00b \ud800", key="hunter2-of-the-depot"), **ATOMIC)

    [(_, _, text)] = lines_of(run)
    assert run.status == "succeeded" and "hunter2" not in text and MARK in text


def test_a_commit_takes_a_bounded_number_of_lines_and_bytes_and_counts_the_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_lines, "LINES", 2)
    lines = LogLines()
    log = lines.logger("agent")
    for number in range(5):
        log.warning(f"line {number}")
    chunk = lines.chunk()
    assert chunk and (chunk.number, chunk.count, chunk.dropped) == (0, 2, 3)

    lines.forget(chunk)
    assert lines.chunk() is None
    log.warning("x" * 10_000)
    again = lines.chunk()
    assert again and again.number == 5 and again.size < log_lines.LONGEST + 100

    monkeypatch.setattr(log_lines, "BYTES", 10)
    log.warning("more")
    more = lines.chunk()
    assert more and (more.count, more.dropped) == (1, 1)


@pytest.mark.parametrize("character", ["x", "ü", "\N{OWL}"])
def test_a_line_that_is_too_long_is_cut_with_a_mark_and_not_dropped(character: str) -> None:
    lines = LogLines()
    try:
        raise ValueError(character * 20_000 + "the end")
    except ValueError:
        lines.logger("agent").error("the beginning" + character * 20_000, value=character * 20_000, exc_info=True)

    chunk = lines.chunk()

    assert chunk and (chunk.count, chunk.dropped) == (1, 0) and chunk.size < log_lines.BYTES
    [[_, _, text, values, error]] = json.loads(chunk.content)
    assert text.startswith(f"the beginning{character}") and text.endswith(f"{character}… (cut)")
    assert values.startswith(f"value={character}") and values.endswith("… (cut)")
    assert error.startswith(f"… (cut){character}") and error.rstrip().endswith("the end")


def test_a_run_keeps_a_bounded_number_of_lines(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    few = entries.LOGGED.replace(str(entries.LINES_OF_A_RUN), "3")
    monkeypatch.setattr("runs.durable.progress.LOGGED", few)

    def body(run: AgentRun) -> None:
        for number in range(6):
            run.log.info("line", number=number)
            run.step(f"step {number}", int)

    assert len(lines_of(lab.run(body))) == 3


def test_lines_are_removed_with_the_payload_and_with_the_run(lab: Lab) -> None:
    run, other = (lab.run(lambda run: run.log.info("of a person"), **ATOMIC) for _ in range(2))

    with transaction.atomic():
        remove_payloads([run.pk])
    assert [row.run_id for row in RunLog.objects.all()] == [other.pk]

    with transaction.atomic():
        delete_runs([other.pk])
    assert not RunLog.objects.exists()


def test_code_of_before_deletes_the_lines_with_the_run(lab: Lab) -> None:
    run = lab.run(lambda run: run.log.info("of a person"), **ATOMIC)
    execute("DELETE FROM runs_run WHERE id = %s::uuid", [run.pk])

    assert not RunLog.objects.exists()


def test_the_page_of_a_run_shows_its_lines(lab: Lab, client: Client, admin_user: Any) -> None:
    run = lab.run(lambda run: run.log.info("picked <b>", sku="bad-1"), **ATOMIC)
    client.force_login(admin_user)

    page = client.get(f"/admin/runs/run/{run.pk}/change/").content.decode()

    assert "<h2>Log</h2>" in page and "picked &lt;b&gt;" in page and "sku=bad-1" in page


def test_the_page_says_how_many_lines_of_how_many_it_shows_and_that_no_more_are_kept(
    transactional_db: None, client: Client, admin_user: Any
) -> None:
    run = make_run(status="succeeded")
    line = ["2026-11-26T20:00:00.000+00:00", "info", "picked", "", ""]
    RunLog.objects.bulk_create(
        RunLog(run=run, epoch=1, number=number, count=1, size=40, dropped=0, content=[line])
        for number in range(entries.LINES_OF_A_RUN)
    )
    client.force_login(admin_user)

    page = client.get(f"/admin/runs/run/{run.pk}/change/").content.decode()

    assert "The newest 300 of 1,000." in page and "The run has as many as are kept" in page
