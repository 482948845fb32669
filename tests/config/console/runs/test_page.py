"""The page of a run shows what it did, what it waits for and what hangs on it, at a price that does not grow with it."""

from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from agents.kernel.reserved_types import SIGNAL
from config.console.parts.sections import Live
from config.console.runs.causal_nodes import BREADTH
from config.console.runs.causal_tree import causal_tree
from config.console.runs.waterfall import Waterfall
from runs.models import AgentStop, ModelCall, Run, RunLog, Step, Worker
from runs.states import RunStatus
from tests.config.console.conftest import LogIn
from tests.config.console.test_pages import queries_of
from tests.support.console import page_of
from tests.support.journals import make_approval, make_child, make_fork, make_step, make_wait
from tests.support.runs import make_run
from tests.support.triggers import make_event

WAITING = RunStatus.WAITING


def page_text(client: Client, run: Run, **query: Any) -> str:
    return client.get(page_of("runs_run", run), query).content.decode()


def entry_of(run: Run) -> str:
    return reverse("admin:runs_run_entry", args=[run.pk])


def opened(client: Client, run: Run, key: str) -> str:
    return client.get(entry_of(run), {"key": key}, headers={"HX-Request": "true"}).content.decode()


def sections_of(client: Client, run: Run, **query: Any) -> list[Any]:
    sections = client.get(page_of("runs_run", run), query).context["sections"]
    return [part for section in sections if isinstance(section, Live) for part in section.sections]


def journal(client: Client, run: Run, **query: Any) -> Waterfall:
    [drawn] = [section for section in sections_of(client, run, **query) if isinstance(section, Waterfall)]
    return drawn


def keys(drawn: Waterfall) -> list[str]:
    return [row.entry.key for row in drawn.rows]


def make_steps(run: Run, count: int, **fields: Any) -> None:
    now = timezone.now()
    values = {"effect": "transactional", "status": "done", "epoch": 1, "started_at": now, "ended_at": now, **fields}
    Step.objects.bulk_create([Step(run=run, key=f"s:{n}", position=n, **values) for n in range(count)])


# What it waits for


def test_wait_for_an_event_is_reported_in_words(admin: Client) -> None:
    run = make_run(status=WAITING)
    until = timezone.now() + timedelta(days=2, hours=3, minutes=1)
    make_wait(run, "event", event_type="invoice.paid", match={"customer": 7}, due_at=until)

    page = page_text(admin, run)

    assert "Waits for <code>invoice.paid</code> with customer = 7, until <time" in page
    assert f"{until:%A %H:%M} UTC</time> (in 2 d 3 h)." in page


def test_wait_for_a_model_says_who_makes_the_request_and_what_the_last_try_came_to(admin: Client) -> None:
    run = make_run(status=WAITING)
    wait = make_wait(run, "model", asked={"reason": "an answer of openai:gpt"})
    call = ModelCall.objects.create(wait=wait, step={}, content={}, epoch=1, claim=uuid4(), tries=1)
    caller = Worker.objects.create(id=uuid4(), kind="caller", host="h", pid=7, version="1")

    said = page_text(admin, run)
    assert "Waits for an answer of openai:gpt." in said and "Left to a caller <time" in said
    assert "No caller has taken the request yet. If none does, within" in said

    ModelCall.objects.update(error="429: busy", due_at=timezone.now() + timedelta(minutes=1))
    said = page_text(admin, run)
    assert "Try 1 failed: 429: busy" in said and "A caller makes the request again <time" in said

    ModelCall.objects.update(owner_id=caller.id, tries=2)
    said = page_text(admin, run)
    assert "Try 1 failed: 429: busy" in said
    assert page_of("runs_worker", caller) in said and ">h:7</a> makes the request." in said

    AgentStop.objects.create(agent=run.agent, reason="", stopped_by="ada")
    assert "Its agent is stopped: the request is made after the start." in page_text(admin, run)

    call.delete()
    assert "No caller has the request any more: within" in page_text(admin, run)


def test_wait_for_a_signal_names_the_signal(admin: Client) -> None:
    run = make_run(status=WAITING)
    make_wait(run, "event", event_type=SIGNAL, match={"run": str(run.pk), "name": "go on"})

    assert "Waits for signal <code>go on</code>." in page_text(admin, run)


def test_sleep_shows_until_when(admin: Client) -> None:
    run = make_run(status=WAITING)
    make_wait(run, "time", due_at=timezone.now() + timedelta(days=30, minutes=1))

    assert "Sleeps until <time" in page_text(admin, run)
    assert "(in 30 d)." in page_text(admin, run)


def test_wait_for_children_counts_those_that_still_run(admin: Client) -> None:
    run = make_run(status=WAITING)
    children = [make_child(run), make_child(run, status="queued"), make_child(run, status="failed")]
    make_wait(run, "children", children=[child.pk for child in children])

    assert "Waits for its children: 1 of 3 still runs." in page_text(admin, run)


def test_the_data_of_an_event_is_shown_to_those_alone_who_may_see_events(log_in: LogIn) -> None:
    for number, status in enumerate((RunStatus.SUCCEEDED, WAITING), start=1):
        event = make_event(data={"iban": f"AT-{number}"})
        run = make_run(event_id=UUID(int=number << 80), event_ids=[event.pk], trigger="pay", status=status)
    pages = [
        page_of("runs_run", run),
        *(reverse(f"admin:runs_run_{name}", args=[run.pk]) for name in ("live", "compare")),
    ]
    may, may_not = log_in("runs.view_run", "triggers.view_event"), log_in("runs.view_run", name="bob")

    assert all("AT-2" in may.get(page).content.decode() for page in pages)
    assert "AT-1" in may.get(pages[-1]).content.decode()
    assert not any("AT-" in may_not.get(page).content.decode() for page in pages)
    assert "Both had the same input" not in may_not.get(pages[-1]).content.decode()


def test_a_child_that_failed_is_seen_on_the_page_of_its_parent(admin: Client) -> None:
    run = make_run(status="succeeded")
    good = [make_child(run, agent="pick") for _ in range(BREADTH + 1)]
    bad = make_child(run, agent="pick", status="failed", error="OutOfStock: bad-1")
    for number, child in enumerate(good):
        make_step(run, f"spawn pick:sku-{number}", output=str(child.pk))
    make_step(run, "spawn pick:bad-1", output=str(bad.pk))
    make_step(run, "spawn of the author's own", output="no id")
    wait = make_wait(run, "children", status="done", children=[child.pk for child in [*good, bad]])

    page = page_text(admin, run)

    assert f"1 of its {len(good) + 1} children failed." in page
    assert "OutOfStock: bad-1" in page
    entries = {row.entry.key: row.entry for row in journal(admin, run).rows}
    assert (entries["spawn pick:bad-1"].state, entries["spawn pick:sku-0"].state) == ("failed", "done")
    assert page_of("runs_run", bad) in entries["spawn pick:bad-1"].summary
    assert entries[wait.key].summary == f"{len(good) + 1} children finished, 1 failed"
    [line, *_] = causal_tree(run).down
    assert (line.state, ">pick:bad-1</a>" in line.what) == ("failed", True)


def test_wait_for_a_decision_links_to_the_approval(admin: Client) -> None:
    run = make_run(status=WAITING)
    approval = make_approval(run, status="open", question="Call <b>Ada</b>?")

    page = page_text(admin, run)

    assert "Waits for a decision: “Call &lt;b&gt;Ada&lt;/b&gt;?”." in page
    assert reverse("admin:runs_approval_change", args=[approval.pk]) in page


def test_list_shows_what_each_waits_for_with_one_more_query_for_all(admin: Client) -> None:
    path = reverse("admin:runs_run_changelist") + "?status__exact=waiting"
    make_approval(make_run(status=WAITING), status="open", question="Call?")
    queries_of(admin, path)
    for_one = queries_of(admin, path)
    for _ in range(3):
        make_wait(make_run(status=WAITING), "time")

    assert queries_of(admin, path) == for_one
    assert "Waits for a decision: “Call?”." in admin.get(path).content.decode()


# What it did


def test_steps_and_waits_are_drawn_in_their_order(admin: Client) -> None:
    run = make_run(status="failed")
    make_step(run, "first", position=0, output={"sent": True})
    make_wait(run, "time", status="expired", key="sleep#1", position=1)
    make_step(run, "second", position=2, status="failed", error="no route", error_kind="OSError", attempts=3)

    drawn = journal(admin, run)

    assert keys(drawn) == ["first", "sleep#1", "second"]
    assert [row.entry.state for row in drawn.rows] == ["done", "expired", "failed"]
    assert drawn.rows[2].entry.summary == "attempt 3 · OSError: no route"
    assert drawn.note == "2 steps (1 failed or not ended), 1 wait"


def test_idempotency_key_is_shown_where_one_is_sent(admin: Client) -> None:
    run = make_run(status="failed")
    make_step(run, "mail", effect="idempotent")
    make_step(run, "count", effect="transactional")

    assert f"{run.pk}:mail" in opened(admin, run, "mail")
    assert "Idempotency key" not in opened(admin, run, "count")


def test_atomic_run_has_no_journal(admin: Client) -> None:
    sections = admin.get(page_of("runs_run", make_run(status="succeeded"))).context["sections"]

    assert not [section for section in sections if isinstance(section, Waterfall)]


def test_long_journal_opens_at_its_end_and_is_paged(admin: Client) -> None:
    run = make_run(status="failed")
    make_steps(run, 450)

    assert keys(journal(admin, run)) == [f"s:{n}" for n in range(400, 450)]
    assert keys(journal(admin, run, entries=1)) == [f"s:{n}" for n in range(200)]
    assert keys(journal(admin, run, entries=99)) == keys(journal(admin, run, entries="x")) == keys(journal(admin, run))
    assert journal(admin, run, entries=2).note == "450 steps, 0 waits · 201 to 400 of 450 shown"
    assert [text for text, _, _ in journal(admin, run, entries=1).links] == ["1", "2", "3"]


def test_failed_only_leaves_out_what_is_done(admin: Client) -> None:
    run = make_run(status="uncertain")
    make_steps(run, 210)
    Step.objects.filter(run=run, key__in=["s:3", "s:205"]).update(status="failed", error="no")
    make_step(run, "pay", status="started", position=300)

    assert keys(journal(admin, run, only="failed")) == ["s:3", "s:205", "pay"]


def test_run_page_costs_the_same_for_ten_steps_and_for_a_thousand(admin: Client) -> None:
    short, long = make_run(status="failed"), make_run(status="failed")
    make_steps(short, 10)
    make_steps(long, 1000)
    queries_of(admin, page_of("runs_run", short))
    for_short = queries_of(admin, page_of("runs_run", short))

    assert queries_of(admin, page_of("runs_run", long)) == for_short
    assert for_short <= 40


def test_entry_that_is_opened_shows_all_it_holds_and_only_then_is_it_read(admin: Client) -> None:
    run = make_run(status="failed")
    make_step(run, "read: all", output={"text": "x" * 5000 + "the end"}, arguments=[7])

    assert "the end" not in page_text(admin, run)
    assert "the end" in opened(admin, run, "read: all")
    page = admin.get(entry_of(run), {"key": "read: all"}).content.decode()
    assert "the end" in page
    assert "Step read: all" in page


def test_wait_that_is_opened_leads_to_what_came(admin: Client) -> None:
    run, event = make_run(status="succeeded"), make_event()
    make_wait(run, "event", status="done", key="paid", event_id=event.pk, match={"customer": 7})

    page = opened(admin, run, "paid")

    assert page_of("triggers_event", event) in page
    assert "&quot;customer&quot;: 7" in page


def chosen(client: Client, run: Run, **query: Any) -> str:
    found = journal(client, run, **query).chosen
    return found.entry.key if found else ""


def test_the_chosen_entry_stands_beside_the_others_and_each_is_a_link_that_chooses_it(admin: Client) -> None:
    run = make_run(status="succeeded")
    make_step(run, "read", position=0, output={"stock": 4711})
    make_step(run, "mail & more", position=1, output={"sent": "to ada"})

    assert chosen(admin, run) == ""
    assert chosen(admin, run, entry="nothing of this name") == ""
    [first, second] = journal(admin, run).rows
    page = admin.get(second.url.partition("#")[0]).content.decode()
    assert chosen(admin, run, entry="mail & more") == "mail & more"
    assert "to ada" in page
    assert "4711" not in page
    assert "4711" in admin.get(first.content, headers={"HX-Request": "true"}).content.decode()


def test_what_failed_is_chosen_as_long_as_nothing_else_is(admin: Client) -> None:
    run = make_run(status="failed")
    for position, (key, status) in enumerate({"read": "done", "pay": "failed", "mail": "failed"}.items()):
        make_step(run, key, position=position, status=status, error="refused" if status == "failed" else "")

    assert chosen(admin, run) == "pay"
    assert chosen(admin, run, entry="read") == "read"


def test_a_step_that_runs_is_not_chosen_by_itself_and_one_in_doubt_is(admin: Client) -> None:
    running, doubtful = make_run(status="waiting"), make_run(status="uncertain")
    make_step(running, "pay", status="started")
    make_step(doubtful, "pay", status="started")

    assert chosen(admin, running) == ""
    assert chosen(admin, doubtful) == "pay"


def test_the_page_of_a_long_journal_is_that_of_the_chosen_entry(admin: Client) -> None:
    run = make_run(status="succeeded")
    make_steps(run, 450)
    make_wait(run, "time", status="expired", key="nap", position=450)

    assert keys(journal(admin, run, entry="s:7")) == [f"s:{n}" for n in range(200)]
    assert chosen(admin, run, entry="s:200") == "s:200"
    assert chosen(admin, run, entry="nap") == "nap"
    assert chosen(admin, run, entry="s:7", entries=2) == ""


def test_the_page_of_the_failed_entries_is_that_of_the_chosen_one(admin: Client) -> None:
    run = make_run(status="failed")
    make_steps(run, 250)
    Step.objects.filter(run=run).update(status="failed", error="no")
    make_step(run, "done", position=0)  # counts among all entries only
    make_step(run, "last", position=250, status="failed", error="no")

    assert chosen(admin, run, only="failed", entry="s:7") == "s:7"
    assert chosen(admin, run, only="failed", entry="s:199") == "s:199"
    assert chosen(admin, run, only="failed", entry="last") == "last"


def test_the_chosen_step_of_a_child_that_failed_shows_the_error_of_the_child(admin: Client) -> None:
    run = make_run(status="succeeded")
    child = make_child(run, status="failed", error="Permanent: no bad-1 on the shelf")
    make_step(run, "spawn pick:bad-1", output=str(child.pk))

    assert chosen(admin, run) == "spawn pick:bad-1"
    assert "Error of the child" in page_text(admin, run)
    assert page_of("runs_run", child) in opened(admin, run, "spawn pick:bad-1")


def test_lines_of_the_log_and_the_step_that_wrote_them_lead_to_each_other(admin: Client) -> None:
    run, at = make_run(status="succeeded"), timezone.now()
    make_step(run, "pick", started_at=at, ended_at=at + timedelta(seconds=2))
    lines = [
        [(at + timedelta(seconds=when)).isoformat(), "info", text, "", ""]
        for when, text in ((1, "inside"), (3, "at the end"))
    ]
    RunLog.objects.create(run=run, epoch=1, number=0, count=2, size=40, dropped=0, content=lines)

    [log] = [one for one in sections_of(admin, run) if getattr(one, "title", "") == "Log"]

    assert ["?entry=pick#journal-entry" in str(row[2]) for row in log.rows] == [True, False]
    beside = opened(admin, run, "pick")
    assert "+1.000 s info inside" in beside
    assert "at the end" not in beside


def test_outputs_are_shown_without_trusting_them(admin: Client) -> None:
    run = make_run(status="failed")
    make_step(run, "<script>alert(1)</script>", output="<script>alert(2)</script>")

    assert "<script>alert(" not in page_text(admin, run) + opened(admin, run, "<script>alert(1)</script>")


# What is not known


def test_uncertain_run_shows_what_was_about_to_be_sent(admin: Client) -> None:
    run = make_run(status="uncertain", status_reason="its worker died")
    make_step(run, "pay", status="started", arguments=[{"cents": 12900}])

    page = page_text(admin, run)

    assert "step <code>pay</code> may or may not have happened" in page
    assert f"<code>{run.pk}:pay</code>" in page
    assert "12900" in page


def test_journal_that_does_not_fit_is_reported_in_words(admin: Client) -> None:
    run = make_run(status="uncertain", status_reason="expected 'mail', found 'post'")

    assert "its journal does not fit today&#x27;s code. expected &#x27;mail&#x27;, found &#x27;post&#x27;" in page_text(
        admin, run
    )


# Causes and effects


def emit(run: Run, **fields: Any) -> Any:
    return make_event(cause_run_id=run.pk, root_id=run.root_id, depth=run.depth + 1, **fields)


def ids(lines: Any) -> list[tuple[int, str, str]]:
    return [(line.level, line.relation, line.state) for line in lines]


@pytest.mark.django_db
def test_chain_is_followed_up_to_its_first_event() -> None:
    first = make_run(event_id=make_event().pk, status="succeeded")
    second = make_run(event_id=emit(first).pk, status="succeeded")
    child = make_child(second)

    assert ids(causal_tree(child).up) == [
        (1, "child of", "succeeded"),
        (2, "woken by", ""),
        (3, "emitted by", "succeeded"),
        (4, "woken by", ""),
    ]


@pytest.mark.django_db
def test_chain_is_followed_down_to_what_it_started_woke_spawned_and_was_forked_to() -> None:
    run = make_run(event_id=make_event().pk, status="succeeded")
    event = emit(run)
    make_run(event_id=event.pk, status="failed")
    make_wait(make_run(status="queued"), "event", status="done", event_id=event.pk)
    child = make_child(run, status="queued")
    make_child(child)
    make_fork(run, status="cancelled")

    tree = sorted(ids(causal_tree(run).down))

    assert tree == [
        (1, "emitted", ""),
        (1, "forked to", "cancelled"),
        (1, "spawned", "queued"),
        (2, "spawned", "succeeded"),
        (2, "started", "failed"),
        (2, "woke", "queued"),
    ]


@pytest.mark.django_db
def test_broad_tree_shows_how_many_more_there_are() -> None:
    run = make_run(status="succeeded")
    for _ in range(BREADTH + 37):
        make_child(run)
    emit(run)

    down = causal_tree(run).down

    assert [line.relation for line in down] == ["emitted", *["spawned"] * (BREADTH + 1)]
    assert down[-1].what == "… 37 more"


@pytest.mark.django_db
def test_run_that_woke_itself_in_a_circle_has_an_end() -> None:
    run = make_run(status="succeeded")
    Run.objects.filter(pk=run.pk).update(event_ids=[emit(run).pk, emit(run).pk])

    tree = causal_tree(run)

    assert ids(tree.up) == [(1, "woken by", ""), (2, "emitted by", "succeeded")] * 2
    assert len(tree.down) == 4


def test_tree_names_an_event_that_is_gone(admin: Client) -> None:
    run = make_run(event_id=UUID("01900000-0000-7000-8000-000000000000"), status="succeeded")

    assert "(deleted)" in page_text(admin, run)
