"""Budgets and prices of models: what was spent today, and raising a cap."""

from decimal import Decimal
from typing import Any

from django import forms
from django.contrib import admin
from django.core.exceptions import ValidationError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils.safestring import SafeString

from config.console.access.audit import entries_of
from config.console.parts import fields
from config.console.parts.dialogs import attempt, dialog, leave
from config.console.parts.links import agent_link, listing, page, run_link
from config.console.parts.moments import moment
from config.console.parts.pages import form_page, plain_page
from config.console.parts.panel import Panel, acting, button, column
from config.console.parts.sections import Notice, Section, Table
from config.console.parts.service_button import service_button
from runs.budgets.caps import allow_more, create_budget, delete_budget, delete_price, set_cap, set_price
from runs.budgets.room import Cap, amount_in_words
from runs.budgets.spending import Spent, spent_today
from runs.budgets.windows import current
from runs.models import Budget, ModelPrice, Run, Wait

SHOWN = 50
AMOUNT: dict[str, Any] = {"max_digits": 22, "decimal_places": 10, "min_value": 0}
NOTE = "Hours, days and months are those of UTC."


def _amount(label: str, help_text: str, **more: Any) -> forms.DecimalField:
    return fields.DecimalField(label=label, help_text=help_text, **AMOUNT, **more)


class CapForm(forms.Form):
    cap = _amount("Cap", "US dollars, tokens, requests or tool calls. Empty: no cap.", required=False)


class AllowForm(forms.Form):
    amount = _amount("Amount", "Allow this on top of the cap, once: in the current hour, day or month, or for one run.")
    run = fields.UUIDField(required=False, label="Run", help_text="Enter the id of the run, for a budget of each run.")


class NewBudgetForm(CapForm):
    scope = fields.ChoiceField(choices=Budget.Scope.choices, label="Whose runs")
    name = fields.CharField(
        required=False,
        label="Name",
        help_text="Enter the name of the agent or the slug of the trigger. Empty for all runs.",
    )
    period = fields.ChoiceField(choices=Budget.Period.choices, label="Per", help_text=NOTE)
    measure = fields.ChoiceField(choices=Budget.Measure.choices, label="Of what")
    at_cap = fields.ChoiceField(choices=Budget.AtCap.choices, label="At the cap")
    field_order = ("scope", "name", "period", "measure", "cap", "at_cap")


DELETE = dialog("Delete this budget?", "Its runs are no longer capped by it. Runs that wait for it go on.", "Delete")


@admin.register(Budget)
class BudgetPanel(Panel):
    """Caps on what runs use of models and tools."""

    list_display = ("whose", "measure", "per", "capped_at", "spent_now", "reserved_now", "set_by")
    list_filter = ("scope", "period", "measure")
    search_fields = ("name",)
    actions_detail = ("change_cap", "allow_once", "delete_this")
    own_pages = {"spending": "spending/"}

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("runs.raise_budget")

    @column("runs of")
    def whose(self, budget: Budget) -> str:
        return "all" if budget.scope == Budget.Scope.INSTALLATION else f"{budget.scope} {budget.name}"

    @column("per")
    def per(self, budget: Budget) -> str:
        return budget.period

    @column("cap")
    def capped_at(self, budget: Budget) -> str:
        return "none" if budget.cap is None else amount_in_words(budget.measure, budget.cap)

    @column("spent now")
    def spent_now(self, budget: Budget) -> str:
        cap = self._window(budget)
        return amount_in_words(budget.measure, cap.spent) + _share(cap) if cap else "–"

    @column("reserved now")
    def reserved_now(self, budget: Budget) -> str:
        cap = self._window(budget)
        return amount_in_words(budget.measure, cap.reserved) if cap else "–"

    @column("set by")
    def set_by(self, budget: Budget) -> str:
        if budget.declared is None:
            return "operator"
        return "code" if budget.declared == budget.cap else "operator, over code"

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        self.windows = current()
        return super().changelist_view(request, extra_context)

    def _window(self, budget: Budget) -> Cap | None:
        return None if budget.period == Budget.Period.RUN else self.windows.get(budget.pk)

    def spending_view(self, request: HttpRequest) -> HttpResponse:
        if not self.has_view_permission(request):
            return self.changelist_view(request)
        return plain_page(self, request, title="Spent today", sections=spending())

    def new(self, request: HttpRequest) -> HttpResponse:
        form = NewBudgetForm(request.POST or None, initial={"period": "day", "measure": "usd"})
        if form.is_valid():
            try:
                budget = create_budget(**form.cleaned_data, by=acting(request))
            except ValidationError as wrong:
                form.add_error(None, wrong.messages)
            else:
                return leave(request, page("runs_budget", budget.pk))
        return form_page(
            self, request, form, title="New budget", submit="Create the budget", back=listing("runs_budget")
        )

    @button("Change cap", permissions=["runs.raise_budget"], icon="edit", url_path="cap", variant="primary")
    def change_cap(self, request: HttpRequest, object_id: str) -> HttpResponse:
        budget = get_object_or_404(Budget, pk=object_id)
        form = CapForm(request.POST or None, initial={"cap": budget.cap and f"{budget.cap.normalize():f}"})
        back = page("runs_budget", budget.pk)
        if form.is_valid():
            cap = form.cleaned_data["cap"]
            return attempt(request, lambda: set_cap(budget.pk, cap, by=acting(request)), done="Saved.", back=back)
        return form_page(self, request, form, title=f"Cap of {budget}", submit="Save", back=back, obj=budget)

    @button("Allow more once", permissions=["runs.raise_budget"], icon="add", url_path="allow")
    def allow_once(self, request: HttpRequest, object_id: str) -> HttpResponse:
        budget = get_object_or_404(Budget, pk=object_id)
        form = AllowForm(request.POST or None, initial={"run": request.GET.get("run", "")})
        back = page("runs_budget", budget.pk)
        if form.is_valid():
            amount, run_id = form.cleaned_data["amount"], form.cleaned_data["run"]

            def allow() -> None:
                allow_more(budget.pk, amount, run_id=run_id, by=acting(request))

            try:
                return attempt(request, allow, done="Allowed. Waiting runs go on.", back=back)
            except (ValueError, Run.DoesNotExist) as wrong:
                form.add_error(None, str(wrong))
        return form_page(self, request, form, title=f"Allow more: {budget}", submit="Allow", back=back, obj=budget)

    @service_button(
        "Delete", "runs.raise_budget", DELETE, icon="delete", url_path="remove", done="Deleted.", to_list=True
    )
    def delete_this(self, object_id: str, by: str) -> None:
        delete_budget(int(object_id), by=by)

    def sections(self, request: HttpRequest, obj: Budget) -> list[Section]:
        cap = "No cap" if obj.cap is None else amount_in_words(obj.measure, obj.cap)
        declared = "" if obj.declared is None else f"The code declares {amount_in_words(obj.measure, obj.declared)}."
        return [
            Notice(text=f"{obj}: {cap}.", details=[text for text in (declared, NOTE) if text]),
            _windows(obj),
            _waiting(),
            entries_of("budget", obj.pk),
        ]


def spending() -> list[Section]:
    spent = spent_today()
    total = sum((one.usd for one in spent), Decimal(0))
    unpriced = sum(one.unpriced for one in spent)
    note = f"{unpriced:,} requests have no known price; add it under Model prices." if unpriced else ""
    return [
        Notice(text=f"{amount_in_words('usd', total)} since midnight UTC.", details=[text for text in (note,) if text]),
        *(_by(name, spent) for name in ("agent", "trigger", "model")),
    ]


def _by(name: str, spent: list[Spent]) -> Table:
    values = sorted({getattr(one, name) for one in spent})
    rows = []
    for value in values:
        of = [one for one in spent if getattr(one, name) == value]
        requests = sum(one.requests for one in of)
        tokens = sum(one.input_tokens + one.output_tokens for one in of)
        rows.append(
            (
                _spender(name, value),
                f"{requests:,}",
                f"{tokens:,}",
                amount_in_words("usd", sum((one.usd for one in of), Decimal(0))),
            )
        )
    return Table(
        title=f"By {name}",
        headers=(name.capitalize(), "Requests", "Tokens", "Spent"),
        rows=rows,
        empty="Nothing today.",
    )


def _spender(name: str, value: str) -> SafeString | str:
    if name == "agent" and value:
        return agent_link(value)
    return value or ("none: runs that other runs started" if name == "trigger" else "–")


def _share(cap: Cap) -> str:
    return f" ({cap.spent / cap.allowed:.0%})" if cap.allowed else ""


def _windows(budget: Budget) -> Table:
    windows = list(budget.windows.order_by("-starts_at", "-id")[:SHOWN])
    each_run = budget.period == Budget.Period.RUN
    return Table(
        title="Runs" if each_run else "Windows",
        headers=("Run" if each_run else "From", "Spent", "Reserved", "Allowed on top"),
        rows=[
            (
                run_link(window.run_id) if each_run else moment(window.starts_at),
                *(amount_in_words(budget.measure, amount) for amount in (window.spent, window.reserved, window.extra)),
            )
            for window in windows
        ],
        empty="Nothing is spent yet.",
        note=f"The latest {SHOWN}." if len(windows) == SHOWN else "",
    )


def _waiting() -> Table:
    waits = list(Wait.objects.filter(status=Wait.Status.OPEN, kind=Wait.Kind.BUDGET).order_by("id")[: SHOWN + 1])
    return Table(
        title="Runs that wait for budget",
        headers=("Run", "Since", "Until", "Reason"),
        rows=[
            (run_link(wait.run_id), moment(wait.created_at), moment(wait.due_at), (wait.asked or {}).get("reason", ""))
            for wait in waits[:SHOWN]
        ],
        empty="None.",
        note=f"The {SHOWN} that have waited longest; there are more." if len(waits) > SHOWN else "",
    )


def _price(label: str, help_text: str, *, required: bool = True) -> forms.DecimalField:
    return fields.DecimalField(
        label=label, required=required, max_digits=16, decimal_places=6, min_value=0, help_text=help_text
    )


class PriceForm(forms.Form):
    input = _price("Input", "US dollars for a million tokens.")
    output = _price("Output", "US dollars for a million tokens.")
    cache_read = _price("Cache read", "Empty: as input.", required=False)
    cache_write = _price("Cache write", "Empty: as input.", required=False)


class NewPriceForm(PriceForm):
    model = fields.CharField(
        max_length=200,
        label="Model",
        help_text="Enter the name of the model, or provider:model, such as openai:gpt-5.2.",
    )
    field_order = ("model", "input", "output", "cache_read", "cache_write")


DELETE_PRICE = dialog("Delete this price?", "The price of genai-prices is used again.", "Delete")


@admin.register(ModelPrice)
class ModelPricePanel(Panel):
    """Prices that replace those of genai-prices."""

    list_display = ("model", "input", "output", "cache_read", "cache_write")
    search_fields = ("model",)
    ordering = ("model",)
    actions_detail = ("edit", "delete_this")

    def has_add_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("runs.change_modelprice")

    def new(self, request: HttpRequest) -> HttpResponse:
        form = NewPriceForm(request.POST or None)
        if form.is_valid():
            price = set_price(**form.cleaned_data, by=acting(request))
            return leave(request, page("runs_modelprice", price.pk))
        back = listing("runs_modelprice")
        return form_page(self, request, form, title="New price", submit="Save", back=back)

    @button("Edit", permissions=["runs.change_modelprice"], icon="edit", variant="primary")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        price = get_object_or_404(ModelPrice, pk=object_id)
        names = ("input", "output", "cache_read", "cache_write")
        form = PriceForm(request.POST or None, initial={name: getattr(price, name) for name in names})
        back = page("runs_modelprice", price.pk)
        if form.is_valid():
            set_price(model=price.model, **form.cleaned_data, by=acting(request))
            return leave(request, back)
        return form_page(self, request, form, title=f"Price of {price}", submit="Save", back=back, obj=price)

    @service_button(
        "Delete",
        "runs.change_modelprice",
        DELETE_PRICE,
        icon="delete",
        url_path="remove",
        done="Deleted.",
        to_list=True,
    )
    def delete_this(self, object_id: str, by: str) -> None:
        delete_price(int(object_id), by=by)

    def sections(self, request: HttpRequest, obj: ModelPrice) -> list[Section]:
        return [
            Notice(
                text=f"{obj}: ${obj.input.normalize():f} input and ${obj.output.normalize():f} output for a million tokens."
            ),
            entries_of("modelprice", obj.pk),
        ]
