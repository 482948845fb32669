"""A night of the six agents of the library that look after a person, on real processes and recorded data, with the built-in model. Each
says what there is to say, once, and nothing when there is nothing. The page of the night has what the ledger has. Nothing is sent."""

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client
from django.utils.html import strip_tags

from runs.actions.checklists import ItemEdit, create_checklist
from tests.support.household import ASKING, BACKUPS_EVERY, DAY, MAIL, THREE, TWO, Household, keeping_house, repository
from tests.support.notifying import make_recipient
from tests.support.post_office import HookServer, MailServer, taking_hooks, taking_mail
from tests.support.replying import TOKEN, connected_to
from tests.support.stack import ROOT, Stack, StackMaker, eventually
from triggers.api.tokens import ensure_token
from triggers.sources.edit import create_source

pytestmark = pytest.mark.chaos
SIX = ("mail-triage", "calendar-brief", "ci-watcher", "backup-checker", "notes-keeper", "repository-tidier")
BY_THE_CLOCK = ("ci-watcher", "backup-checker", "repository-tidier", "notes-keeper")
HASTY = {"WAKEFUL_LEASE": "3s", "WAKEFUL_LEASE_RENEW": "0.75s", "WAKEFUL_SAFETY_LOOK": "2s"}
# Without what waits for a clock: the beat's own tasks, heartbeats, and people.
AT_WORK = """
SELECT (SELECT count(*) FROM triggers_event WHERE dispatched_at IS NULL)
     + (SELECT count(*) FROM runs_run WHERE status IN ('running', 'queued'))
     + (SELECT count(*) FROM runs_notification WHERE planned_at IS NULL)
     + (SELECT count(*) FROM runs_delivery WHERE status IN ('pending', 'sending')) AS left
"""
RUNS = "SELECT agent, status, count(*) AS n FROM runs_run GROUP BY agent, status"
LEDGER = """
SELECT count(*) AS requests, sum((usage->>'cost')::numeric)::float8 AS usd,
  sum((usage->>'input_tokens')::int + (usage->>'output_tokens')::int) AS tokens
FROM runs_step WHERE kind = 'model' AND usage IS NOT NULL
"""


class Night:
    def __init__(self, stack: Stack, house: Household, hook: HookServer, smtp: MailServer) -> None:
        self.stack, self.house, self.hook, self.smtp = stack, house, hook, smtp

    def begin(self) -> None:
        """The evening: the sources, what is to be watched, and who is notified."""
        with self.stack.orm():
            ensure_token("test", self.stack.env["WAKEFUL_API_TOKEN"], ["*"])
            make_recipient("ops", self.hook.url)
            for name in ("mail", "github"):
                connected_to(self.house.host, name)
            for agent, text in self.watched().items():
                create_checklist(agent, items=[ItemEdit(text=text)], by="ada")
            mail = {"connection": "mail", "every": "10s", "begin_with": "new"}
            create_source("inbox", kind="gmail", settings=mail, by="ada")
            calendar = {"url": f"{self.house.url}/calendar.ics", "every": "10s", "events": "starts"}
            create_source("calendar", kind="ics", settings=calendar, by="ada")

    def watched(self) -> dict[str, str]:
        root = self.house.folder
        return {
            "ci-watcher": "ada/shop@main",
            "backup-checker": f"{root}/backups/*.dump newer than {BACKUPS_EVERY}, at least 1 kB",
            "repository-tidier": f"{root}/shop",
        }

    def wake(self, *agents: str) -> None:
        """As their schedules do, and until all have ended."""
        for agent in agents:
            answer = self.stack.api("POST", f"/api/v1/triggers/{agent}/fire/", {})
            assert answer.status in (200, 201, 202), answer.body
            self.rest()

    def rest(self) -> None:
        eventually(lambda: not self.stack.query(AT_WORK)[0]["left"])

    def said(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in self.stack.query(
            "SELECT sender, text FROM runs_notification WHERE topic NOT LIKE 'incident:%%' ORDER BY id"
        ):
            found.setdefault(row["sender"], []).append(row["text"])
        return found

    def arrived(self) -> list[str]:
        """The texts that people got."""
        return [one["text"] for post in self.hook.posted for one in json.loads(post.body)["data"]["notifications"]]

    def outcomes(self) -> dict[str, dict[str, int]]:
        found: dict[str, dict[str, int]] = {}
        for row in self.stack.query(RUNS):
            found.setdefault(row["agent"], {})[row["status"]] = row["n"]
        return found

    def rows_of_the_page(self) -> dict[str, tuple[str, ...]]:
        """The table of the console's page, by agent: its figures as texts."""
        with self.stack.orm():
            client = Client()
            client.force_login(get_user_model().objects.create_superuser("ada", password="x"))
            table = client.get("/admin/overnight/").context["table"]
        assert table.headers[1] == "Woken" and table.headers[5:7] == ("Spoke", "Sent")
        return {strip_tags(str(row[0])): tuple(map(str, row[1:])) for row in table.rows}

    def page(self) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
        """The figures of the night by agent, and their sums, as the API gives them."""
        answer = self.stack.api("GET", "/api/v1/overnight/")
        assert answer.status == 200, answer.body
        found = answer.json()
        return {one["agent"]: one for one in found["agents"]}, found["total"]


@pytest.fixture
def night(make_stack: StackMaker, tmp_path: Path) -> Iterator[Night]:
    with taking_hooks() as hook, taking_mail() as smtp, keeping_house(TOKEN, tmp_path) as house:
        env = {
            **HASTY,
            "WAKEFUL_APPS": "household",
            "PYTHONPATH": str(ROOT / "tests" / "userapps"),
            "HOUSEHOLD": house.url,
            "WAKEFUL_LIBRARY": ",".join(SIX),
            "WAKEFUL_MODEL": "builtin",
            "WAKEFUL_HTTP_NETWORKS": "127.0.0.0/8",
            "WAKEFUL_ENCRYPTION_KEYS": ",".join(settings.WAKEFUL_ENCRYPTION_KEYS),
            "WAKEFUL_WORK_ROOTS": str(tmp_path),
            "EMAIL_URL": smtp.url,
        }
        yield Night(make_stack(env=env, agents=True), house, hook, smtp)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("dies", [False, True], ids=["quiet", "killed"])
def test_a_night_of_six_agents(night: Night, dies: bool) -> None:
    stack, house = night.stack, night.house
    (house.folder / "notes").mkdir()
    (house.folder / "notes" / "2020-01-01.md").write_text("- old\n")
    house.backup("1.dump", 2 * DAY)
    house.backup("2.dump", timedelta(hours=1))
    repository(house.folder)
    night.begin()
    for kind in ("web", "beat", "dispatcher", "sources"):
        stack.start(kind)
    worker = stack.start("worker", concurrency=2)
    eventually(
        lambda: stack.query("SELECT count(*) AS n FROM triggers_reading WHERE position IS NOT NULL")[0]["n"] == 2
    )

    # All is well: a passing build, fresh backups. Only what could be tidied is said.
    night.wake("ci-watcher", "backup-checker", "repository-tidier")
    assert set(night.said()) <= {"repository-tidier", "calendar-brief"}

    # The night: mail, a build that fails, a backup that did not come.
    for one in MAIL:
        house.receive(*one)
    if dies:
        for _ in range(3):
            eventually(lambda: stack.query("SELECT 1 FROM runs_run WHERE status = 'running' AND agent = 'mail-triage'"))
            worker.kill()
            worker.restart()
    eventually(
        lambda: (
            stack.query("SELECT count(*) AS n FROM triggers_event WHERE type = 'mail.received'")[0]["n"] == len(MAIL)
        )
    )
    night.rest()
    house.commit, house.conclusion = TWO, "failure"
    (house.folder / "backups" / "2.dump").unlink()
    night.wake(*BY_THE_CLOCK)
    night.wake("ci-watcher", "backup-checker")  # nothing has changed: silent
    house.commit, house.conclusion = THREE, "success"
    house.backup("3.dump", timedelta())
    night.wake("ci-watcher", "backup-checker")
    night.wake(*BY_THE_CLOCK)

    # What they have said.
    said = night.said()
    assert [text.partition(" at ")[0] for text in said["ci-watcher"]] == [
        "CI: ada/shop@main fails", "CI: ada/shop@main passes again,",
    ]  # fmt: skip
    missing, *same, again = said["backup-checker"]  # people are reminded once a day, by the rule of the recipient
    assert set(same) <= {missing} and "the newest is 1.dump" in missing and "all is well again" in again
    [tidy] = said["repository-tidier"]
    assert "-d -- merged" in tidy and "-D -- forgotten" in tidy and "at-work" not in tidy
    [brief] = said["calendar-brief"]
    assert brief.startswith("Budget of the shop") and "Where: Room 7" in brief
    notes = [note.read_text() for note in (house.folder / "notes").iterdir() if "2020" not in note.name]
    assert len(notes) in (1, 2) and any("- mail-triage: " in note for note in notes)
    assert "notes-keeper" not in said
    arrived = [text for text in night.arrived() if not text.startswith("A draft answers")]
    assert sorted(arrived) == sorted([*said["ci-watcher"], missing, again, tidy, brief])

    # The mail: each message has a label of Wakeful's own, and who asks has a draft, to no other person, at most once.
    outcomes = night.outcomes()
    uncertain = outcomes["mail-triage"].get("uncertain", 0)
    assert sum(outcomes["mail-triage"].values()) == len(MAIL) and (dies or not uncertain)
    assert all(set(counts) <= {"succeeded", "uncertain"} for counts in outcomes.values())
    assert all(len(house.labels_of(id)) == 1 for id in house.messages)
    assert all(label.startswith("Wakeful/") for label in house.labels)
    drafts = house.recipients_of_drafts()
    assert len(set(drafts)) == len(drafts) and set(drafts) <= set(ASKING)
    assert len(drafts) >= len(ASKING) - uncertain and len(said["mail-triage"]) >= len(ASKING) - uncertain

    # Nothing was sent or asked beyond that.
    assert not house.refused
    wrote = {path.split("/", 2)[2].split("/")[0] for _, path in house.written}
    assert wrote == {"labels", "messages", "drafts"} and not any("send" in path for _, path in house.asked)
    assert not night.smtp.connections
    assert stack.query("SELECT 1 FROM runs_delivery WHERE recipient_id IS NULL") == []

    # The page of the night has what the tables have.
    agents, total = night.page()
    assert set(SIX) <= set(agents)
    for agent in SIX:
        assert agents[agent]["spoke"] == len(said.get(agent, ())) == sum(agents[agent]["deliveries"].values()), agent
        assert agents[agent]["runs"] == sum(outcomes.get(agent, {}).values()), agent
    rows = night.rows_of_the_page()
    for agent in SIX:
        shown = agents[agent]
        expected = [shown["woken"], shown["spoke"], shown["deliveries"].get("sent", 0), shown["requests"]]
        assert [rows[agent][at] for at in (0, 4, 5, 10)] == [f"{one:,}" if one else "–" for one in expected], agent
    [ledger] = stack.query(LEDGER)
    assert {name: float(total[name]) for name in ledger} == {name: float(spent) for name, spent in ledger.items()}
    assert ledger["requests"] == agents["mail-triage"]["requests"] >= len(MAIL)
    assert (total["failed"], ledger["usd"]) == (0, 0)
