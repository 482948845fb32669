"""Budgets over HTTP."""

from decimal import Decimal

import pytest

from runs.models import AuditEntry, Budget
from tests.support.api import Api
from tests.support.runs import make_run

pytestmark = pytest.mark.django_db
DAY = {"scope": "installation", "period": "day", "measure": "usd", "cap": "5"}


def test_a_budget_is_made_listed_changed_and_deleted() -> None:
    api = Api()

    made = api.post("budgets/", DAY)
    assert (made.status, made.body["cap"], made.body["at_cap"]) == (201, "5", "wait")
    [listed] = api.get("budgets/").body["results"]
    assert (listed["id"], listed["window"]["spent"]) == (made.body["id"], "0")
    changed = api.patch(f"budgets/{listed['id']}/", {"cap": "7.50"})
    assert (changed.status, changed.body["cap"]) == (200, "7.5")
    allowed = api.post(f"budgets/{listed['id']}/allow/", {"amount": "0.25"})
    assert (allowed.status, allowed.body["window"]["extra"]) == (200, "0.25")
    assert api.delete(f"budgets/{listed['id']}/").status == 204
    actions = list(AuditEntry.objects.filter(kind="budget").order_by("id").values_list("action", flat=True))
    assert actions == ["create", "cap", "allow", "delete"]


def test_a_cap_is_changed_only_with_the_permission() -> None:
    budget = Budget.objects.create(scope="installation", period="day", measure="usd", cap=5)
    viewer = Api(["runs.view_budget"])

    assert viewer.get(f"budgets/{budget.pk}/").status == 200
    assert viewer.patch(f"budgets/{budget.pk}/", {"cap": "7"}).status == 403
    assert viewer.post(f"budgets/{budget.pk}/allow/", {"amount": "7"}).status == 403
    budget.refresh_from_db()
    assert budget.cap == 5


def test_an_invalid_budget_is_refused_with_its_field() -> None:
    api = Api()
    budget = Budget.objects.create(scope="installation", period="run", measure="usd", cap=5)

    assert "cap" in api.patch(f"budgets/{budget.pk}/", {"cap": "-1"}).body
    assert "limit" in api.patch(f"budgets/{budget.pk}/", {"limit": "1"}).body
    assert api.post("budgets/", {**DAY, "scope": "agent"}).status == 400  # whose?
    assert api.post("budgets/", {**DAY, "period": "run"}).status == 400  # there is one
    assert "amount" in api.post(f"budgets/{budget.pk}/allow/", {"amount": "1"}).body  # for which run?
    assert api.post(f"budgets/{budget.pk}/allow/", {"amount": "1", "run": str(make_run().id)}).status == 200


def test_a_declared_budget_cannot_be_deleted() -> None:
    budget = Budget.objects.create(scope="installation", period="day", measure="usd", cap=5, declared=Decimal(5))

    refused = Api().delete(f"budgets/{budget.pk}/")

    assert (refused.status, refused.body["status"]) == (409, "declared")
