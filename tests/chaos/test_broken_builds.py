"""The checker's own test: builds that are broken on purpose, each in one of the things that carry the promises. It must
notice every one of them. `make chaos ALL=1` runs these; they are patches of processes (tests/userapps/lab/sabotage.py)
and of one database, never of the code."""

from pathlib import Path
from typing import Any

import pytest

from tests.chaos.lab import FAST, lab
from tests.chaos.load import Delivery
from tests.chaos.play import play
from tests.chaos.scenarios import Fault, Point, Scenario

pytestmark = [pytest.mark.chaos, pytest.mark.long]

FEW = {"web": 1, "dispatcher": 1, "worker": 2, "beat": 1}
FROZEN_BEFORE_ITS_BODY = Scenario(point=Point(name="after_claim", kind="worker", child=True), fault=Fault.STOP_ALL)
FROZEN_IN_ITS_BODY = Scenario(point=Point(name="holding_rows", kind="worker", child=True), fault=Fault.STOP_ALL)
KILLED_AFTER_ITS_DELETE = Scenario(point=Point(name="after_early_delete", kind="dispatcher"), fault=Fault.KILL)
KILLED_AFTER_ITS_MARK = Scenario(point=Point(name="after_early_mark", kind="dispatcher"), fault=Fault.KILL)
SHARD_KILLED_AFTER_ITS_MARK = Scenario(
    point=Point(name="after_early_mark_of_a_shard", kind="dispatcher"), fault=Fault.KILL
)
KILLED_AFTER_ITS_ANSWER = Scenario(point=Point(name="after_early_answer", kind="web"), fault=Fault.KILL)
KILLED_CHILD = Scenario(point=Point(name="after_body", kind="worker", child=True), fault=Fault.KILL)
CHILDREN_KILLED = Scenario(special="children_killed_again_and_again")
KILLED_AFTER_AN_UNWRITTEN_CALL = Scenario(
    point=Point(name="after_unwritten_call", kind="worker", child=True), fault=Fault.KILL
)
DECIDED_TWICE = Scenario(special="people_decide_at_once")
HANGING_BROKER = Scenario(special="redis_hangs")
LOST_NOTIFY = Scenario(special="a_notify_is_lost")
FORGOTTEN_GRANT = Scenario(special="the_database_refuses_runs")

# What stands behind the fence: without these three, an old owner's commit is refused nowhere.
BEHIND_THE_FENCE = (
    "ALTER TABLE runs_attemptrow DROP CONSTRAINT attempt_one_per_claim",
    "ALTER TABLE runs_processedevent DROP CONSTRAINT runs_processedevent_pkey",
)

BROKEN = {
    "no_fence": (FROZEN_BEFORE_ITS_BODY, BEHIND_THE_FENCE, "every success has one effect, and so has no other run"),
    "no_termination": (FROZEN_IN_ITS_BODY, (), "beside a frozen worker: drained: no run is unfinished"),
    "no_attempts": (KILLED_CHILD, (), "every claim ended in one attempt, and counts as one"),
    "no_key_lock": (CHILDREN_KILLED, ("DROP INDEX run_one_per_slot",), "key"),
    "no_dedup": (
        KILLED_CHILD,
        ("ALTER TABLE triggers_event DROP CONSTRAINT event_once",),
        "an event is recorded once",
    ),
    "outbox_deletes_first": (
        KILLED_AFTER_ITS_DELETE,
        (),
        "emitted is there",
    ),  # by a run or a step: its message is lost
    "intent_after_call": (KILLED_AFTER_AN_UNWRITTEN_CALL, (), "what may happen at most once was called at most once"),
    "no_look_back": (KILLED_CHILD, (), "no wait timed out though what it waited for had come before"),
    "decisions_without_a_lock": (DECIDED_TWICE, (), "an approval is used once, for what was decided"),
    "rings_where_it_dispatches": (HANGING_BROKER, (), "while the broker hangs: dispatch goes on"),
    "gives_up_at_once": (FORGOTTEN_GRANT, (), "while the database refuses runs: no event is given up"),
    "no_safety_look": (LOST_NOTIFY, (), "where a NOTIFY is lost: the safety look finds its event"),
    "answers_before_it_commits": (KILLED_AFTER_ITS_ANSWER, (), "no accepted event is lost"),
    "marks_before_it_decides": (KILLED_AFTER_ITS_MARK, (), "every event is explained"),
    "shards_mark_before_they_decide": (SHARD_KILLED_AFTER_ITS_MARK, (), "every event is explained"),
    "shards_divide_keys": (KILLED_CHILD, (), "key"),
}

IN_PARTS = {"WAKEFUL_DISPATCH_SHARDS": "2"}
OF_BUILD = {
    "answers_before_it_commits": {"WAKEFUL_INGEST_SESSIONS": "2"},
    "shards_mark_before_they_decide": IN_PARTS,
    "shards_divide_keys": IN_PARTS,
}


def in_turn(key: int, number: int) -> Delivery:
    return Delivery(id=f"{key}-{number}", type="lab.ordered", data={"key": f"steady-{key}", "number": number * 5})


@pytest.mark.timeout(400)
@pytest.mark.parametrize("build", BROKEN)
def test_the_checker_notices_a_broken_build(build: str, tmp_path: Path, django_db_blocker: Any) -> None:
    scenario, alterations, promise = BROKEN[build]
    patches = f"hasty_outbox,{'in_parts,' * (OF_BUILD.get(build) == IN_PARTS)}{build}"
    settings = {**FAST, "LAB_PATCHES": patches, **OF_BUILD.get(build, {})}

    with lab(tmp_path / build, settings=settings, crew=FEW, blocker=django_db_blocker) as here:
        for statement in alterations:
            here.stack.query(statement)
        # About one event of a key in each batch, while the one before is being done.
        steady = here.senders(1)
        for key in range(8):
            steady.send([in_turn(key, number) for number in range(16)], pause=lambda: 0.25)
        played = play(here, 0, scenario, drain=15)
        steady.close()

    broken = [finding.name for finding in played.report.violated] + played.failures
    print(f"\n{build}: {len(broken)} promises broken")
    for name in broken:
        print(f"    {name[:300]}")
    assert played.struck
    assert any(promise in name for name in broken)
