"""Arguments that a person gives in place of those of a call have their shape; one that has not leaves the approval open."""

from decimal import Decimal
from typing import Any, Literal

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent as LlmAgent

from runs.actions.approve import decide
from runs.models import Approval, Run, Step
from tests.support.api import Api
from tests.support.durable import Lab, lab
from tests.support.journals import make_approval, make_asking_run
from tests.support.llm import Turns
from tests.support.runs import make_run

__all__ = ["lab"]
pytestmark = pytest.mark.django_db(transaction=True)

NAN = float("nan")
ASKED = {"cents": 500, "to": {"name": "Ann"}}


class Payee(BaseModel):
    name: str


def paying(lab: Lab, paid: list[Any], arguments: Any = ASKED) -> Run:
    """A run whose model wants to pay, and waits for approval."""
    llm = LlmAgent(Turns([("pay", arguments)], "done").model, name="payer")

    @llm.tool_plain(metadata={"dangerous": True})
    def pay(
        cents: int,
        to: Payee,
        note: str | None = None,
        tip: Decimal = Decimal(0),
        by: Literal["card", "cash"] = "card",
        urgent: bool = False,
    ) -> str:
        paid.append((cents, to.name, note, tip, by, urgent))
        return "paid"

    return lab.run(lambda run: run.llm(llm, "Pay?", untrusted="x").output)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([1], "an object with 'by', 'to', 'tip', 'note', 'cents', 'urgent', not [1]"),
        (5, "an object with"),
        ("x", 'not "x"'),
        ({}, "argument 'cents' is missing"),
        ({"cents": 1}, "argument 'to' is missing"),
        ({**ASKED, "more": 2}, "argument 'more' is not known to the tool; it takes 'by', 'to', 'tip', 'note', 'cents'"),
        ({**ASKED, "cents": "a lot"}, "argument 'cents' must be integer, not \"a lot\""),
        ({**ASKED, "cents": 1.5}, "must be integer"),
        ({**ASKED, "cents": True}, "must be integer"),
        ({**ASKED, "cents": None}, "must be integer"),
        ({**ASKED, "note": 5}, "argument 'note' must be string or null"),
        ({**ASKED, "urgent": 1}, "must be boolean"),
        ({**ASKED, "by": "cheque"}, "argument 'by' must be one of"),
        ({**ASKED, "cents": NAN}, "value of arguments is not JSON"),
        ({**ASKED, "note": "a\x00b"}, "value of arguments contains a NUL"),
        ({**ASKED, "note": "\ud800"}, "value of arguments is not JSON"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_and_the_approval_stays_open(
    lab: Lab, arguments: Any, complaint: str
) -> None:
    paid: list[Any] = []
    run = paying(lab, paid)
    approval = Approval.objects.get(wait__run=run)

    with pytest.raises(ValueError, match="argument") as refusal:
        decide(approval.pk, decision="edit", by="ann", arguments=arguments)

    assert complaint in str(refusal.value)
    assert (Approval.objects.get().status, lab.go_on(run).status, paid) == ("pending", "waiting", [])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ({**ASKED, "cents": 1}, (1, "Ann", None, 0, "card", False)),
        ({**ASKED, "cents": 2.0}, (2, "Ann", None, 0, "card", False)),
        ({**ASKED, "note": "hello", "tip": "0.5"}, (500, "Ann", "hello", Decimal("0.5"), "card", False)),
        ({**ASKED, "note": None, "tip": 3}, (500, "Ann", None, 3, "card", False)),
        ({**ASKED, "by": "cash", "urgent": True}, (500, "Ann", None, 0, "cash", True)),
        ({"cents": 500, "to": {"name": "Bob"}}, (500, "Bob", None, 0, "card", False)),
    ],
)
def test_arguments_that_fit_the_tool_are_used(lab: Lab, arguments: Any, expected: Any) -> None:
    paid: list[Any] = []
    run = paying(lab, paid)

    decide(Approval.objects.get(wait__run=run).pk, decision="edit", by="ann", arguments=arguments)

    assert (lab.go_on(run).status, paid) == ("succeeded", [expected])


def test_an_argument_that_stays_as_it_was_shown_fits(lab: Lab) -> None:
    paid: list[Any] = []
    run = paying(lab, paid, {**ASKED, "cents": "500"})  # lenient validation accepts it

    decide(
        Approval.objects.get(wait__run=run).pk,
        decision="edit",
        by="ann",
        arguments={"cents": 500, "to": {"name": "Bob"}},
    )

    assert (lab.go_on(run).status, [cents for cents, *_ in paid]) == ("succeeded", [500])


@pytest.mark.parametrize("schema", [None, True, {"required": True, "properties": [1]}])
def test_where_the_schema_is_not_known_the_names_of_the_call_count(lab: Lab, schema: Any) -> None:
    approval = Approval.objects.get(wait__run=paying(lab, []))
    request = Step.objects.get(kind="model")
    assert request.arguments
    request.arguments[0]["tools"][0]["parameters"] = schema
    request.save(update_fields=["arguments"])

    shown = approval.arguments or {}
    with pytest.raises(ValueError, match="argument 'more' is not known to the tool; it takes 'by', 'to', 'tip'"):
        decide(approval.pk, decision="edit", by="ann", arguments={**shown, "more": 1})
    decide(approval.pk, decision="edit", by="ann", arguments={**shown, "cents": 1})


def test_an_approval_with_an_object_accepts_only_an_object() -> None:
    approval = make_asking_run()

    with pytest.raises(ValueError, match="the arguments are an object with 'cents', 'invoice', not 5"):
        decide(approval.id, decision="edit", by="ann", arguments=5)
    decide(approval.id, decision="edit", by="ann", arguments={"cents": 1, "other": 2})


def test_an_approval_with_a_number_accepts_any_arguments() -> None:
    approval = make_approval(make_run(status="waiting"), status="open", arguments=5)

    assert decide(approval.id, decision="edit", by="ann", arguments={"cents": 1}).status == "edited"


@pytest.mark.parametrize("reason", ["a\x00b", "\ud800"])
def test_a_reason_that_cannot_be_stored_is_refused(reason: str) -> None:
    approval = make_asking_run()

    with pytest.raises(ValueError, match="the value of reason"):
        decide(approval.id, decision="deny", by="ann", reason=reason)

    assert Approval.objects.get().status == "pending"


def test_the_api_names_the_argument(lab: Lab) -> None:
    approval = Approval.objects.get(wait__run=paying(lab, []))

    answer = Api().post(
        f"approvals/{approval.pk}/decide/", {"decision": "edit", "arguments": {**ASKED, "cents": "a lot"}}
    )

    assert (answer.status, answer.body) == (400, {"arguments": ["argument 'cents' must be integer, not \"a lot\""]})
