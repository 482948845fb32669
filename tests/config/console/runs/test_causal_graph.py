"""The drawing of the chain around a run or an event: whole as far as it is bounded, and with what failed in sight."""

from typing import Any

import pytest
from django.test import Client

from agents.kernel.redaction import know
from config.console.runs.causal_graph import BOXES, Box, Graph
from config.console.runs.causal_tree import causal_tree, causal_tree_of_event
from runs.models import Run
from tests.config.console.test_pages import queries_of
from tests.support.console import list_of, page_of
from tests.support.journals import make_child, make_step
from tests.support.runs import make_run
from tests.support.triggers import make_event
from triggers.models import Event

pytestmark = pytest.mark.django_db


def emit(run: Run, **fields: Any) -> Event:
    return make_event(cause_run_id=run.pk, root_id=run.root_id, depth=run.depth + 1, **fields)


def woken(event: Event, agent: str, status: str = "succeeded") -> Run:
    return make_run(agent=agent, event_id=event.pk, status=status)


def drawn(of: Run | Event) -> Graph:
    graph = (causal_tree(of) if isinstance(of, Run) else causal_tree_of_event(of)).graph
    assert graph
    return graph


def lines(graph: Graph) -> list[tuple[str, str]]:
    return sorted((box.name, box.about) for box in graph.boxes)


def box(graph: Graph, name: str) -> Box:
    [found] = [one for one in graph.boxes if one.name == name]
    return found


def test_the_whole_chain_is_drawn_from_each_of_its_pages() -> None:
    paid = make_event(type="order.paid", subject="A-2001")
    fulfil, invoice = woken(paid, "fulfil"), woken(paid, "invoice")
    picked = emit(fulfil, type="order.picked")
    slip = woken(picked, "packing-slip", "failed")
    whole = [
        ("fulfil", "succeeded"), ("invoice", "succeeded"), ("order.paid", "A-2001"), ("order.picked", "event"), ("packing-slip", "failed"),
    ]  # fmt: skip

    assert [lines(drawn(one)) for one in (paid, fulfil, invoice, picked, slip)] == [whole] * 5
    graph = drawn(slip)
    assert len(graph.edges) == 4
    assert [one.name for one in sorted(graph.boxes, key=lambda one: one.x) if one.name != "invoice"] == [
        "order.paid", "fulfil", "order.picked", "packing-slip",
    ]  # fmt: skip
    assert box(graph, "packing-slip").is_here
    assert box(graph, "packing-slip").url == ""
    assert box(graph, "fulfil").url == page_of("runs_run", fulfil)


def test_a_child_that_failed_is_seen_from_the_page_of_its_event(admin: Client) -> None:
    paid = make_event()
    run = woken(paid, "fulfil")
    child = make_child(run, agent="pick", status="failed")
    make_step(run, "spawn pick:bad-1", output=str(child.pk))

    page = admin.get(page_of("triggers_event", paid)).content.decode()

    assert "<title>run pick:bad-1: failed</title>" in page
    assert f'<a href="{page_of("runs_run", child)}"><g class="graph-box graph-run graph-failed"' in page


def test_children_that_succeeded_are_one_box_and_others_are_not() -> None:
    run = woken(make_event(type="order.paid"), "fulfil")
    for _ in range(5):
        make_child(run, agent="pick", status="succeeded")
    make_child(run, agent="pick", status="failed")
    with_effects = make_child(run, agent="pick", status="succeeded")
    emit(with_effects, type="order.picked")

    graph = drawn(run)

    assert lines(graph) == [
        ("fulfil", "succeeded"), ("order.paid", "event"), ("order.picked", "event"), ("pick", "failed"), ("pick", "succeeded"),
        ("pick × 5", "succeeded"),
    ]  # fmt: skip
    assert box(graph, "pick × 5").url == f"{list_of('runs_run')}?parent={run.pk}"
    assert graph.count == 10


def test_what_failed_is_drawn_before_what_is_nearer_and_the_rest_is_counted(admin: Client) -> None:
    run = make_run(agent="fan-out", status="succeeded")
    for _ in range(9):
        child = make_child(run, agent="branch", status="waiting")
        for _ in range(9):
            make_child(child, agent="leaf", status="waiting")
    deep = make_child(make_child(child, agent="zweig", status="waiting"), agent="deep", status="failed")

    graph = drawn(run)

    assert box(graph, "deep").url == page_of("runs_run", deep)
    hidden = [one for one in graph.boxes if one.kind == "more"]
    assert len(graph.boxes) - len(hidden) == BOXES
    an_event_and_runs = 1 + 1 + 9 + 9 * 9 + 2
    assert sum(int(one.name.split()[1]) for one in hidden) == an_event_and_runs - BOXES
    found = admin.get(hidden[0].url).context["cl"].result_list
    # One of them has a child more, and the ids of one millisecond are in any order.
    assert len(found) in (9, 10) and all(f"parent={one.parent_id}" in hidden[0].url for one in found)


def test_siblings_beyond_those_that_are_read_are_counted_as_well() -> None:
    run = make_run(agent="fan-out", status="succeeded")
    for _ in range(47):
        make_child(run, agent="leaf", status="waiting")

    assert box(drawn(run), "… 37 more").about == "not drawn"


def test_a_circle_and_an_event_that_is_gone_are_drawn() -> None:
    run = make_run(agent="echo", status="succeeded")
    Run.objects.filter(pk=run.pk).update(event_ids=[emit(run, type="again").pk, make_event(type="gone").pk])
    Event.objects.filter(type="gone").delete()
    run.refresh_from_db()

    assert lines(drawn(run)) == [("again", "event"), ("echo", "succeeded"), ("event", "deleted")]


def test_what_stands_alone_is_not_drawn() -> None:
    assert causal_tree_of_event(make_event()).graph is None


def test_names_are_shown_without_secrets_and_without_trusting_them(admin: Client) -> None:
    know("hunter2-of-the-depot-in-vienna")
    event = make_event(type="<script>alert(1)</script>", subject="hunter2-of-the-depot-in-vienna")
    run = woken(event, "greeter")

    page = admin.get(page_of("runs_run", run)).content.decode()

    assert "<script>alert(1)" not in page
    assert "hunter2" not in page and "graph-event" in page


def test_a_broad_chain_costs_no_more_queries_than_a_narrow_one(admin: Client) -> None:
    narrow, broad = make_event(), make_event()
    woken(narrow, "one")
    for _ in range(8):
        emit(woken(broad, "many"))
    queries_of(admin, page_of("triggers_event", narrow))

    costs = [queries_of(admin, page_of("triggers_event", event)) for event in (narrow, broad)]

    assert costs[1] <= costs[0] + 1  # names of what was spawned
