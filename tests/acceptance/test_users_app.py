"""A user's own app, in a folder outside the project: a model, a migration, agents, and no line of ours changed for it."""

import shutil
from pathlib import Path

import pytest

from tests.support.stack import Stack, StackMaker, eventually

SHOP = Path(__file__).parents[1] / "userapps" / "shop"


@pytest.fixture(scope="module")
def running(make_shared_stack: StackMaker, tmp_path_factory: pytest.TempPathFactory) -> Stack:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(SHOP, elsewhere / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    return make_shared_stack(env={"WAKEFUL_APPS": "shop", "PYTHONPATH": str(elsewhere)}, agents=True).up(beat=False)


def test_agents_of_an_app_outside_the_project_run_and_wake_each_other(running: Stack) -> None:
    event = running.manage("emit", "effect.wanted", "--data", '{"n": 1}').stdout.strip()

    eventually(lambda: running.query("SELECT count(*) FROM shop_effect") == [{"count": 3}])
    effects = running.query("SELECT agent, trigger, event::text FROM shop_effect")
    [emitted] = running.query("SELECT id::text, data FROM triggers_event WHERE type = 'effected'")
    assert emitted["data"] == {"event": event, "by": "effect"}
    assert {(effect["agent"], effect["trigger"], effect["event"]) for effect in effects} == {
        ("effect", "effect", event),
        ("effect-b", "effect-b", event),
        ("chained", "chained", emitted["id"]),
    }
    eventually(lambda: not running.query("SELECT 1 FROM runs_run WHERE agent <> 'networker' AND status <> 'succeeded'"))


def test_an_atomic_agent_that_reaches_for_the_network_fails_at_once_and_leaves_nothing(running: Stack) -> None:
    event = running.manage("emit", "network.wanted").stdout.strip()

    run = eventually(lambda: running.query("SELECT error FROM runs_run WHERE status = 'failed'"))

    assert "durable=True" in run[0]["error"]
    assert not running.query("SELECT 1 FROM shop_effect WHERE event = %s", event)
