"""What a trigger matches, changed and tried over the API."""

import pytest

from tests.support.api import Api
from tests.support.triggers import make_event, make_trigger
from triggers.models import Trigger

pytestmark = pytest.mark.django_db


def test_a_wrong_expression_is_400_with_line_column_and_text() -> None:
    make_trigger(filter="true")

    answer = Api().patch(
        "triggers/greeter/", {"filter": "event.data.n ==\n == 1", "input": {"id": "event.id", "n": "event.amount"}}
    )

    assert answer.status == 400
    assert answer.body["filter"] == ["line 2, column 2, at '==': is not expected here"]
    assert answer.body["input"]["n"][0].startswith("line 1, column 7, at 'amount': is no field of event")
    assert Trigger.objects.get().filter == "true"


def test_a_change_is_an_override_and_names_its_faults() -> None:
    make_trigger(declared={"filter": "true"}, filter="true")

    changed = Api().patch("triggers/greeter/", {"filter": "event.data.n == 1", "types": ["order.*"]})
    refused = Api(name="other").patch("triggers/greeter/", {"source": "nowhere"})

    assert (changed.status, changed.body["filter"], changed.body["overrides"]) == (
        200, "event.data.n == 1", ["filter", "types"]
    )  # fmt: skip
    assert refused.status == 400 and "no source 'nowhere' exists" in refused.body["source"][0]


def test_a_trial_explains_misses_to_those_who_may_see_events() -> None:
    make_event(data={"n": 1})
    body = {"types": ["visitor.*"], "filter": "event.data.n > 2"}

    answer = Api().post("triggers/try/", body)

    assert (answer.status, answer.body["matching"]) == (200, 0)
    [verdict] = answer.body["events"]
    assert verdict["result"] == "no"
    assert verdict["clauses"] == [
        {"text": "event.data.n > 2", "state": "false", "level": 0, "why": "", "reads": {"event.data.n": "1"}}
    ]
    assert Api(["triggers.change_trigger"], name="blind").post("triggers/try/", body).status == 403
    assert Api(["triggers.view_event"], name="idle").post("triggers/try/", body).status == 403
