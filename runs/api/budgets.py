"""Budgets over HTTP: what is capped and spent, and raising a cap."""

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema, extend_schema_field
from rest_framework import serializers
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from runs.api.body import Body
from runs.api.resource import ById, Refusal, Resource, faults_at, faults_by_field
from runs.api.shown import Shown
from runs.budgets.caps import allow_more, create_budget, delete_budget, set_cap
from runs.budgets.windows import current
from runs.models import Budget, Run

AMOUNT: dict[str, Any] = {"max_digits": 22, "decimal_places": 10, "min_value": 0}


class WindowSerializer(Shown):
    starts_at = serializers.DateTimeField()
    ends_at = serializers.DateTimeField()
    spent = serializers.DecimalField(max_digits=24, decimal_places=10, normalize_output=True)
    reserved = serializers.DecimalField(
        max_digits=24, decimal_places=10, normalize_output=True, help_text="by steps under way, at their worst case"
    )
    extra = serializers.DecimalField(
        max_digits=24, decimal_places=10, normalize_output=True, help_text="what was allowed on top of the cap, once"
    )


class BudgetSerializer(Shown, serializers.ModelSerializer[Budget]):
    cap = serializers.DecimalField(max_digits=24, decimal_places=10, normalize_output=True, allow_null=True)
    declared = serializers.DecimalField(max_digits=24, decimal_places=10, normalize_output=True, allow_null=True)
    window = serializers.SerializerMethodField(
        help_text="the current one; null for a budget of each run, or without a cap"
    )

    class Meta:
        model = Budget
        fields = ["id", "scope", "name", "period", "measure", "cap", "at_cap", "declared", "window"]
        read_only_fields = fields

    @extend_schema_field(WindowSerializer(allow_null=True))
    def get_window(self, budget: Budget) -> Any:
        window = self.context["windows"].get(budget.pk)
        return None if window is None or budget.period == Budget.Period.RUN else WindowSerializer(window).data


class NewBudgetBody(Body):
    scope = serializers.ChoiceField(Budget.Scope.choices)
    name = serializers.CharField(required=False, default="", allow_blank=True, max_length=200)
    period = serializers.ChoiceField(Budget.Period.choices)
    measure = serializers.ChoiceField(Budget.Measure.choices)
    cap = serializers.DecimalField(allow_null=True, **AMOUNT)
    at_cap = serializers.ChoiceField(Budget.AtCap.choices, required=False, default="wait")


class CapBody(Body):
    cap = serializers.DecimalField(allow_null=True, help_text="null: no cap", **AMOUNT)


class AllowBody(Body):
    amount = serializers.DecimalField(**AMOUNT)
    run = serializers.UUIDField(required=False, default=None, help_text="of a budget of each run")


class BudgetResource(Resource):
    required_permissions = {
        "list": "runs.view_budget",
        "retrieve": "runs.view_budget",
        "create": "runs.raise_budget",
        "partial_update": "runs.raise_budget",
        "destroy": "runs.raise_budget",
        "allow": "runs.raise_budget",
    }
    serializer_class = BudgetSerializer
    pagination_class = ById
    queryset = Budget.objects.order_by("id")

    def get_queryset(self) -> QuerySet[Budget]:
        return Budget.objects.order_by("id")

    def list(self, request: Request) -> Response:
        """Every budget, with what is spent of its current window."""
        page = self.paginate_queryset(self.get_queryset()) or []
        return self.get_paginated_response(self._json(page, many=True))

    def retrieve(self, request: Request, pk: str) -> Response:
        """One budget."""
        return Response(self._json(self.get_object()))

    @extend_schema(request=NewBudgetBody, responses={201: BudgetSerializer})
    def create(self, request: Request) -> Response:
        """Cap what the runs of an agent, of a trigger, or all runs use."""
        with faults_by_field():
            budget = create_budget(**NewBudgetBody.read(request), by=str(request.user))
        return Response(self._json(budget), status=201)

    @extend_schema(request=CapBody, responses=BudgetSerializer)
    def partial_update(self, request: Request, pk: str) -> Response:
        """Change the cap. Runs that wait for this budget go on if there is room now."""
        body = CapBody.read(request)
        return Response(self._json(set_cap(self.get_object().pk, body["cap"], by=str(request.user))))

    @extend_schema(responses={204: None, 409: Refusal})
    def destroy(self, request: Request, pk: str) -> Response:
        """Delete a budget that no code declares."""
        delete_budget(self.get_object().pk, by=str(request.user))
        return Response(status=204)

    @extend_schema(request=AllowBody, responses={200: BudgetSerializer, 409: Refusal})
    @action(detail=True, methods=["post"])
    def allow(self, request: Request, pk: str) -> Response:
        """Allow more than the cap, once: in the current window, or for one run of a budget of each run."""
        body = AllowBody.read(request)
        try:
            with faults_at("amount"):
                budget = allow_more(self.get_object().pk, body["amount"], run_id=body["run"], by=str(request.user))
        except Run.DoesNotExist:
            raise Http404(f"There is no run {body['run']}.") from None
        return Response(self._json(budget))

    def _json(self, budgets: Any, *, many: bool = False) -> Any:
        return BudgetSerializer(budgets, many=many, context={"windows": current()}).data
