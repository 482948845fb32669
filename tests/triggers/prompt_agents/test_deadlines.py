"""A prompt agent that wakes if an event does not come by a time of day, in words and by every other door."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from agents import on
from tests.support.api import Api
from tests.support.prompt_agents import SAYS
from tests.support.switches import work
from triggers.exceptions import Invalid, RuleError
from triggers.models import Source, SwitchTimer, Trigger
from triggers.prompt_agents.as_json import read
from triggers.prompt_agents.deadlines import read_deadline
from triggers.prompt_agents.wakes import OnAbsence, OnSchedule, add_wake, read_wake
from triggers.transfer.carry_out import import_triggers
from triggers.transfer.export import export_triggers

SENTENCE = "every weekday at 3 pm, unless ci.passed for branch main and release/2 came since noon, say what holds it up"
DECLARED = on.absence(
    "ci.passed", by="15:00", since="noon", days="mon, tue, wed, thu, fri", tz="Europe/Vienna", key="event.data.branch",
    keys=["main", "release/2"],
)  # fmt: skip


def test_a_sentence_begins_with_its_deadline_and_means_what_the_code_declares() -> None:
    found, rest = read_wake(SENTENCE, "Europe/Vienna")

    assert found == OnAbsence(settings=DECLARED.settings)
    assert rest == "say what holds it up"


@pytest.mark.parametrize(
    ("text", "expected", "rest"),
    [
        ("at 3 pm, unless ci.passed came since noon tell me", {"by": "15:00", "since": "noon", "days": ""}, "tell me"),
        ("By 08:00 unless backup.done has come.\nLook at\nthe disks.", {"by": "08:00"}, "Look at\nthe disks."),
        ("daily at 8 unless a.b or c.* arrived: go on", {"types": ["a.b", "c.*"], "by": "08:00"}, "go on"),
        (
            "every monday at 17:00 UTC unless ci.passed for each branch of ci.started came, ask why",
            {"of": "ci.started", "key": "event.data.branch", "keys": [], "days": "mon", "tz": "UTC"},
            "ask why",
        ),
        (
            "0 15 * * 1-5 unless x.y for event.subject a, b and c came – look",
            {"key": "event.subject", "keys": ["a", "b", "c"], "days": "mon, tue, wed, thu, fri"},
            "look",
        ),
    ],
)
def test_the_parts_of_a_sentence(text: str, expected: dict[str, Any], rest: str) -> None:
    arguments, left = read_deadline(text, "Europe/Vienna")

    assert arguments is not None
    assert {name: arguments[name] for name in expected} == expected
    assert left == rest


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("at 3 pm, unless ci.passed for this branch came since noon, tell me", "which ones are expected"),
        ("tomorrow at 3 pm unless ci.passed came, tell me", "recurs"),
        ("every day at 9:00 and 17:00 unless ci.passed came, tell me", "one time of day"),
        ("on the 1st of every month at 9:00 unless ci.passed came, tell me", "one time of day"),
    ],
)
def test_a_deadline_that_makes_no_sense_is_refused_with_what_to_write(text: str, why: str) -> None:
    with pytest.raises(RuleError, match=why):
        read_deadline(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        SAYS,
        "look at runs at 3 pm, unless nothing came since noon",
        "every weekday at 8 unless it is Monday, look",
        "unless",
    ],
)
def test_a_text_that_begins_otherwise_has_no_deadline(text: str) -> None:
    assert read_deadline(text) == (None, text)


@settings(max_examples=25)
@given(some.lists(some.sampled_from([*SENTENCE.split(), "unless", "came", "for", "each", "or", "1", ","]), max_size=30))
def test_any_words_are_read_or_refused(words: list[str]) -> None:
    try:
        found, rest = read_wake(" ".join(words))
    except RuleError:
        return
    assert found is None or isinstance(found, OnSchedule | OnAbsence)
    assert len(rest) <= len(" ".join(words))


# Every door


@pytest.mark.django_db
def test_the_sentence_the_api_and_a_file_make_the_same_trigger_and_switch() -> None:
    words = SENTENCE.removesuffix(", say what holds it up").replace("3 pm", "3 pm Europe/Vienna")
    arguments, _ = read_deadline(words)
    assert arguments
    as_json = {"absence": arguments.pop("types"), **arguments}
    whens, api = {"sentence": words, "object": as_json}, Api()
    for name, when in whens.items():
        made = api.post("prompt-agents/", {"name": name, "instructions": SAYS, "when": [when]})
        assert (made.status, made.body["triggers"]) == (201, [name])
    work()

    for name in whens:
        source, trigger = Source.objects.get(slug=name), Trigger.objects.get(slug=name)
        assert (source.kind, source.settings) == ("absence", DECLARED.settings)
        assert (trigger.source, trigger.types, trigger.agent) == (name, ["absence.opened"], name)
        assert set(SwitchTimer.objects.filter(source=source).values_list("key", flat=True)) == {"main", "release/2"}

    content = export_triggers(["object"]).content
    Trigger.objects.all().delete()
    Source.objects.filter(slug="object").delete()
    import_triggers(content, by="test")
    assert Source.objects.get(slug="object").settings == DECLARED.settings
    assert Trigger.objects.get(slug="object").source == "object"


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ({"absence": ["a"]}, "needs one of"),
        ({"absence": "a", "by": "15:00"}, "must be a list"),
        ({"absence": ["a"], "by": "15:00", "slug": "x"}, "each is"),
        ({"absence": [1], "by": "15:00"}, "absence must be a list of event types"),
        ({"absence": ["a"], "by": "15:00", "key": "event.subject", "keys": [[]]}, "keys is a list of texts"),
        ({"absence": ["a"], "by": "15:00", "key": "event.subject", "keys": {"main": 1}}, "keys is a list of texts"),
        ({"absence": ["a"], "by": "15:00", "of": 5}, "of is an event type"),
    ],
)
def test_an_absence_that_nothing_declares_is_refused(when: dict[str, Any], why: str) -> None:
    with pytest.raises(Invalid, match=why):
        read({"when": [when]})


@pytest.mark.django_db
@pytest.mark.parametrize(("by", "why"), [("25:00", "no time of day"), (15, "must be text")])
def test_a_wrong_setting_is_refused_and_leaves_nothing(by: Any, why: str) -> None:
    made = Api().post("prompt-agents/", {"name": "watch", "instructions": SAYS, "when": [{"absence": ["a"], "by": by}]})

    assert made.status == 400 and why in str(made.body)
    assert not Source.objects.filter(slug="watch").exists()


@pytest.mark.django_db
def test_a_switch_takes_no_name_that_a_source_has() -> None:
    Api().post("prompt-agents/", {"name": "watch", "instructions": SAYS})
    [wake] = read({"when": [SENTENCE.removesuffix(", say what holds it up")]}).when
    Source.objects.create(slug="watch", kind="bearer")

    assert add_wake("watch", wake, by="test").slug == "watch-2"
