"""Fork, signal and resolve from the run's page."""

import pytest
from django.test import Client

from agents import registry
from runs.models import Run, Step
from runs.states import RunStatus
from tests.config.console.conftest import LogIn
from tests.config.console.runs.test_page import opened
from tests.config.console.test_actions import press
from tests.support.console import make_failed_run, page_of
from tests.support.journals import make_fork, make_step
from tests.support.runs import make_run
from tests.support.triggers import make_trigger

NOUN = "runs_run"
VIEWER = ("runs.view_run", "triggers.view_event")


def uncertain() -> Run:
    run = make_run(status=RunStatus.UNCERTAIN)
    make_step(run, "pay", status="started", arguments=[12900])
    return run


def fork_of(run: Run) -> Run:
    return Run.objects.get(forked_from_id=run.pk)


def test_each_entry_offers_a_fork_that_begins_there(admin: Client) -> None:
    run = make_failed_run(make_trigger())
    make_step(run, "mail:7&8", status="failed", error="no")

    assert "fork_run/?step=mail%3A7%268" in opened(admin, run, "mail:7&8")
    dialog = admin.get(page_of(NOUN, run).replace("change", "fork_run"), {"step": "mail:7&8"}).content.decode()
    assert 'value="mail:7&amp;8"' in dialog


def test_fork_takes_over_what_came_before_the_step_and_leads_to_the_new_run(admin: Client) -> None:
    run = make_failed_run(make_trigger(), input={"n": 1})
    make_step(run, "first")
    make_step(run, "second", status="failed", error="no")

    answer = press(admin, NOUN, run, "fork_run", step="second", input='{"n": 1}')

    fork = fork_of(run)
    assert list(fork.steps.values_list("key", flat=True)) == ["first"]
    assert fork.input == {"n": 1}
    assert answer.redirect_chain[0][0] == page_of(NOUN, fork)


@pytest.mark.parametrize(("field", "typed"), [("input", "{n: 1}"), ("step", "no such step")])
def test_an_error_is_shown_at_its_field_in_the_open_dialog(admin: Client, field: str, typed: str) -> None:
    run = make_failed_run(make_trigger())

    answer = press(admin, NOUN, run, "fork_run", **{"input": "null", field: typed})

    assert answer.templates[0].name == "unfold/helpers/dialog.html"
    assert list(answer.context["form"].errors) == [field]
    assert not Run.objects.filter(forked_from_id=run.pk).exists()


def test_uncertain_run_goes_on_with_the_result_a_person_found_out(admin: Client) -> None:
    run = uncertain()

    press(admin, NOUN, run, "resolve_run", outcome="happened", result='{"charge": "ch_7"}')

    step = Step.objects.get(run=run)
    assert (step.status, step.output) == ("done", {"charge": "ch_7"})
    assert Run.objects.get(pk=run.pk).status == RunStatus.QUEUED


def test_result_of_what_did_not_happen_is_refused_at_its_field(admin: Client) -> None:
    run = uncertain()

    answer = press(admin, NOUN, run, "resolve_run", outcome="did_not_happen", result='{"charge": 1}')

    assert "result" in answer.context["form"].errors
    assert Run.objects.get(pk=run.pk).status == RunStatus.UNCERTAIN


def test_a_dialog_that_was_opened_before_resolves_no_later_doubt(admin: Client) -> None:
    run = uncertain()
    dialog = admin.get(page_of(NOUN, run).replace("change", "resolve_run"))
    shown = dialog.context["form"]["epoch"].value()
    Run.objects.filter(pk=run.pk).update(epoch=run.epoch + 1)

    press(admin, NOUN, run, "resolve_run", outcome="did_not_happen", epoch=shown)
    assert Run.objects.get(pk=run.pk).status == RunStatus.UNCERTAIN

    press(admin, NOUN, run, "resolve_run", outcome="did_not_happen", epoch=shown + 1)
    assert Run.objects.get(pk=run.pk).status == RunStatus.QUEUED


def test_journal_that_does_not_fit_is_tried_again_or_failed_but_has_no_result(admin: Client) -> None:
    run = make_run(status=RunStatus.UNCERTAIN)

    dialog = admin.get(page_of(NOUN, run).replace("change", "resolve_run"))

    assert [value for value, _ in dialog.context["form"].fields["outcome"].choices] == ["did_not_happen", "fail"]
    assert "result" not in dialog.context["form"].fields


def test_viewer_is_offered_no_fork(log_in: LogIn) -> None:
    run, viewer = uncertain(), log_in(*VIEWER)

    assert "fork_run" not in viewer.get(page_of(NOUN, run)).content.decode() + opened(viewer, run, "pay")


@pytest.mark.parametrize(
    ("status", "offered"),
    [
        ("uncertain", {"Resolve", "Fork", "Signal", "Shadow run", "Cancel"}),
        ("waiting", {"Fork", "Signal", "Shadow run", "Cancel"}),
        ("failed", {"Requeue", "Fork", "Shadow run"}),
        ("succeeded", {"Fork", "Shadow run"}),
    ],
)
def test_buttons_are_those_its_state_allows(admin: Client, status: str, offered: set[str]) -> None:
    actions = admin.get(page_of(NOUN, make_run(status=status))).context["actions_detail"]

    assert {action["title"] for action in actions} == offered


def test_a_run_that_cannot_wait_for_a_signal_is_offered_none(admin: Client) -> None:
    atomic, durable = (
        next(one.name for one in registry.all_agents() if one.durable is is_it) for is_it in (False, True)
    )

    for name, is_offered in ((atomic, False), (durable, True)):
        actions = admin.get(page_of(NOUN, make_run(status="queued", agent=name))).context["actions_detail"]
        assert ("Signal" in {action["title"] for action in actions}) is is_offered


def test_forked_run_leads_to_its_fork_and_is_not_requeued(admin: Client) -> None:
    run = make_failed_run(make_trigger())
    fork = make_fork(run)

    page = admin.get(page_of(NOUN, run))

    assert "continues its work" in page.content.decode()
    assert page_of(NOUN, fork) in page.content.decode()
    assert {action["title"] for action in page.context["actions_detail"]} == {"Fork", "Shadow run"}
