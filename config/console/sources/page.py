from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Case, Q, QuerySet, When
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import html, timezone
from django.utils.safestring import SafeString
from unfold.forms import BaseDialogForm
from unfold.widgets import UnfoldAdminTextInputWidget

from config.console.access.audit import entries_of
from config.console.parts import fields
from config.console.parts.bulk import carry_out
from config.console.parts.dialogs import dialog, leave
from config.console.parts.html import format_html
from config.console.parts.links import event_link, link, listing, page
from config.console.parts.moments import distance, moment
from config.console.parts.pages import form_page, render, reveal, reveal_in_dialog
from config.console.parts.panel import Panel, acting, allowed, button, column, time_column
from config.console.parts.sections import Facts, Notice, Section, Table, Text
from config.console.parts.service_button import service_button
from config.console.sources.condition import COLOURS, conditions_of
from config.console.sources.form import NewSourceForm, SettingsForm, kind_of, settings_of_case
from config.console.sources.health import health_line
from config.console.sources.listeners import listeners
from config.console.sources.metrics import series as metric_series
from config.console.sources.metrics.trial import MetricButtons
from config.console.sources.reading import notice_of, sections_of
from config.console.sources.setup import address_of, groups, has_secret_address, setup_steps
from config.console.sources.switches import switch_sections
from config.console.sources.table import is_by_statement, table_notice, table_sections
from triggers.exceptions import Invalid
from triggers.models import MetricDetector, RefusedDelivery, Secret, Source
from triggers.sources.databases.tables.keep import KIND, check_table
from triggers.sources.databases.tables.sweep import sweep_soon
from triggers.sources.edit import change_source, create_source
from triggers.sources.kind import Kind, kinds
from triggers.sources.metrics.metric import Metric
from triggers.sources.runner import Runner, runners
from triggers.sources.secrets import add_secret, rotate
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.limits import limit_fields
from triggers.sources.webhooks.proof import MATCH_NOTED_EVERY
from triggers.sources.webhooks.scheme import schemes
from triggers.sources.webhooks.test_event import can_be_tried, send_test_event
from triggers.switches.switch import KINDS as SWITCHES

REFUSED_SHOWN = 50
SHORT = 16  # characters of a secret
STRANGERS = "strangers, perhaps: a run that it wakes is tainted by its first call of a model"
NOT_YET = "Follow the steps below. “Send a test event” shows beforehand which triggers its events match."


class GraceForm(BaseDialogForm):  # type: ignore[misc]
    """A form for the time that old secrets stay valid."""

    hours = fields.IntegerField(
        min_value=0,
        max_value=24 * 30,
        initial=24,
        label="Old secret stays valid (hours)",
        help_text="Allow time to change the secret at the sender. Use 0 if the old secret leaked.",
    )

    @property
    def grace(self) -> timedelta:
        return timedelta(hours=self.cleaned_data["hours"])


class OwnSecretForm(GraceForm):
    """A secret that the provider made."""

    secret = forms.CharField(
        strip=False, widget=UnfoldAdminTextInputWidget(attrs={"autocomplete": "off"}), label="Provider's secret"
    )
    field_order = ("secret", "hours")

    def clean_secret(self) -> str:
        source = get_object_or_404(Source, pk=self.object_id)
        try:
            return kinds()[source.kind].clean_secret(self.cleaned_data["secret"])
        except InvalidSettings as error:
            raise forms.ValidationError("; ".join(error.errors.values())) from None


CHECK = dialog("Check the triggers?", "Missing triggers are created again, and missed changes are reported.", "Check")
SWEEP = dialog(
    "Sweep the table?",
    "The whole table is read in the background, within minutes. Rows that have changed since the last sweep without an event "
    "become events. The first sweep only remembers the rows.",
    "Sweep",
)


@admin.register(Source)
class SourcePanel(MetricButtons, Panel):
    """Sources of events."""

    list_display = ("slug", "kind_label", "state", "last", "said", "address", "created")
    list_filter = ("enabled", "kind")
    search_fields = ("slug",)
    search_help_text = "source"
    actions = ("enable_chosen", "disable_chosen")
    actions_detail = (
        "edit", "send_test", "rotate_secret", "enter_secret", "check_table", "sweep_table", "try_detector", "disarm_detector",
    )  # fmt: skip

    # Lists

    def get_ordering(self, request: HttpRequest) -> tuple[Any, ...]:
        return Case(When(kind__in=kinds(), then=0), default=1).asc(), "slug"  # built-in ones last

    def get_changelist_instance(self, request: HttpRequest) -> ChangeList:
        listed = super().get_changelist_instance(request)
        conditions = conditions_of(listed.result_list, now=timezone.now())
        for source in listed.result_list:
            source.condition = conditions[source.pk]
        return listed

    @column("kind")
    def kind_label(self, source: Source) -> str:
        kind = kind_of(source)
        return kind.label if kind else f"{source.kind} (built in)"

    @column("state", label=COLOURS)
    def state(self, source: Any) -> str:
        return str(source.condition.word)

    @column("last event")
    def last(self, source: Any) -> SafeString:
        return moment(source.condition.last_at)

    @column("because", empty_value="–")
    def said(self, source: Any) -> str | None:
        return source.condition.said or None

    @column("address", empty_value="–")
    def address(self, source: Source) -> SafeString | None:
        scheme = schemes().get(source.kind)
        return html.format_html("<code>{}</code>", scheme.address(source.slug)) if scheme else None

    created = time_column("created", "created_at")

    # Making and changing

    has_add_permission = allowed("triggers.add_source")
    has_edit_permission = allowed("triggers.change_source")

    def new(self, request: HttpRequest) -> HttpResponse:
        kind = kinds().get(request.POST.get("choice", "") or request.GET.get("choice", ""))
        if kind is None:
            may_make = partial(_may_have, request)
            return render(self, request, "admin/console/kinds.html", title="New source", groups=groups(may_make))
        _check_permission(request, kind)
        form = NewSourceForm(request.POST or None, kind=kind)
        if form.is_valid() and (created := _create(form, acting(request))):
            source, made = created
            _warn_of_short(request, form.cleaned_data["secret"])
            back = page("triggers_source", source.pk)
            if not made:
                messages.success(request, f"Source {source.slug} is created.")
                return leave(request, back)
            secret, explained = _to_enter(source, made)
            return reveal(
                self, request, title=f"Secret of {source.slug}", secret=secret, explained=explained, back=back
            )
        return form_page(
            self,
            request,
            form,
            title=f"New source: {kind.label}",
            submit="Create the source",
            back=reverse("admin:triggers_source_add"),
            groups=form.groups(),
            choice=form.choice_of_case,
        )

    @button("Edit", permissions=["triggers.change_source"], icon="edit")
    def edit(self, request: HttpRequest, object_id: str) -> HttpResponse:
        source = get_object_or_404(Source, pk=object_id, kind__in=kinds())
        kind = kinds()[source.kind]
        _check_permission(request, kind)
        form = SettingsForm(
            request.POST or None,
            kind=kind,
            asks_secret=any(field.secret_goes_to for field in kind.fields) and source.secrets.exists(),
            values=source.settings,
            limits=source.limits,
            initial={"enabled": source.enabled, "trusted": source.trusted},
        )
        if form.is_valid() and _change(source, form, acting(request)):
            messages.success(request, "Saved.")
            return leave(request, page("triggers_source", object_id))
        back = page("triggers_source", object_id)
        return form_page(
            self, request, form, title="Edit source", submit="Save", back=back, groups=form.groups(), obj=source,
            choice=form.choice_of_case,
        )  # fmt: skip

    @button(
        "Send a test event",
        permissions=["triggers.change_source"],
        icon="send",
        url_path="test",
        dialog=dialog(
            "Send a test event?",
            "A sample of this kind of source is recorded; of a webhook, it is signed with the newest valid secret and delivered "
            "to this source. It becomes a real event: triggers that match it start runs.",
            "Send it",
        ),
    )
    def send_test(self, request: HttpRequest, form: BaseDialogForm, object_id: str) -> HttpResponse:
        source = get_object_or_404(Source, pk=object_id, kind__in=kinds())
        trial = send_test_event(source, by=acting(request))
        if trial.event_id:
            event = event_link(trial.event_id)
            messages.success(request, format_html("Test event accepted ({}): {}.", trial.status, event))
        else:
            messages.error(request, f"Test event refused ({trial.status}): {trial.reason}.")
        return leave(request, page("triggers_source", object_id))

    @button(
        "New secret",
        permissions=["triggers.change_source"],
        icon="key",
        variant="primary",
        url_path="rotate-secret",
        dialog=dialog(
            "Create a new secret?", "It is shown once. Choose how long the old one stays valid.", "Create it", GraceForm
        ),
    )
    def rotate_secret(self, request: HttpRequest, form: GraceForm, object_id: str) -> HttpResponse:
        source = get_object_or_404(Source, pk=object_id)
        plain = rotate(source, grace=form.grace, by=acting(request))
        secret, _ = _to_enter(source, plain)
        explained = f"Enter it at the sender of {source.slug}. The old one expires in {form.cleaned_data['hours']} h."
        return reveal_in_dialog(request, secret=secret, explained=explained, back=page("triggers_source", object_id))

    @button(
        "Enter a secret",
        permissions=["triggers.change_source"],
        icon="password",
        url_path="enter-secret",
        dialog=dialog("Enter a secret", "For providers that create the secret themselves.", "Save it", OwnSecretForm),
    )
    def enter_secret(self, request: HttpRequest, form: OwnSecretForm, object_id: str) -> HttpResponse:
        source = get_object_or_404(Source, pk=object_id)
        add_secret(source, form.cleaned_data["secret"], grace=form.grace, by=acting(request))
        _warn_of_short(request, form.cleaned_data["secret"])
        messages.success(request, "The secret is saved, encrypted.")
        return leave(request, page("triggers_source", object_id))

    @service_button("Check now", "triggers.change_source", CHECK, icon="build", url_path="check-table", done="Checked.")
    def check_table(self, object_id: str, by: str) -> None:
        check_table(get_object_or_404(Source, pk=object_id, kind=KIND), by=by)

    @service_button(
        "Sweep now",
        "triggers.change_source",
        SWEEP,
        icon="cleaning_services",
        url_path="sweep-table",
        done="The sweep begins within five minutes.",
    )
    def sweep_table(self, object_id: str, by: str) -> None:
        sweep_soon(get_object_or_404(Source, pk=object_id, kind=KIND), by=by)

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        source = Source.objects.filter(pk=object_id).first()
        kind = kind_of(source) if source else None
        if source is None or kind is None:
            return dict.fromkeys(self.actions_detail, False)
        possible = {"send_test": can_be_tried(source), "enter_secret": kind.needs_secret}
        possible["check_table"] = source.kind == KIND and source.enabled
        possible["sweep_table"] = possible["check_table"] and not is_by_statement(source)
        possible["edit"] = _may_have(request, kind)
        possible["rotate_secret"] = kind.needs_secret and not kind.is_secret_given
        possible["try_detector"] = isinstance(kind, Metric)
        possible["disarm_detector"] = MetricDetector.objects.filter(source=source, disarmed_at=None).exists()
        return possible

    @admin.action(description="Enable", permissions=["edit"])
    def enable_chosen(self, request: HttpRequest, queryset: QuerySet[Source]) -> None:
        self._switch(request, queryset, on=True)

    @admin.action(description="Disable", permissions=["edit"])
    def disable_chosen(self, request: HttpRequest, queryset: QuerySet[Source]) -> None:
        self._switch(request, queryset, on=False)

    def _switch(self, request: HttpRequest, queryset: QuerySet[Source], *, on: bool) -> None:
        word = "enabled" if on else "disabled"
        act, legal = partial(change_source, changes={"enabled": on}), Q(kind__in=kinds(), enabled=not on)
        carry_out(request, queryset, act, done=word, legal=legal, otherwise=f"built in, or already {word}")

    # One source

    def sections(self, request: HttpRequest, obj: Source) -> list[Section]:
        kind, scheme = kind_of(obj), schemes().get(obj.kind)
        events = link(listing("triggers_event", source__id__exact=obj.pk), "list")
        facts = [
            ("Name", obj.slug),
            ("Kind", self.kind_label(obj)),
            ("Created", moment(obj.created_at)),
            ("Events", events),
        ]
        if obj.declared is not None:
            facts.append(("Declared in code", "Settings that are changed here stay; the others follow the code."))
        if kind is None:
            built_in = Notice(text="Built-in source. Nothing to configure.")
            return [built_in, Facts(rows=facts)]
        facts.append(("Written by", "people or systems that you trust" if obj.trusted else STRANGERS))
        steps = list(setup_steps(kind, obj.slug))
        may_add = request.user.has_perm("triggers.add_trigger")
        condition = conditions_of([obj], now=timezone.now())[obj.pk]
        about = [Facts(rows=facts), health_line(obj, condition), listeners(obj, may_add=may_add)]
        sections: list[Section] = [*about, *steps]
        if isinstance(kind, Runner):
            measured = metric_series.sections_of(obj, request) if isinstance(kind, Metric) else []
            sections = [notice_of(obj), *measured, *about, *sections_of(obj), *steps]
        if obj.kind == KIND:
            sections = [table_notice(obj), *about, *table_sections(obj), *steps]
        if scheme:
            address = Text(title="Address for the sender", text=address_of(kind, obj.slug))
            # The steps come first until they are done.
            below = [*about, *steps] if _is_set_up(obj) else [*steps, *about]
            sections = [_notice(obj), address, *below]
        if obj.kind in SWITCHES:
            sections = [*switch_sections(obj), *sections]
        if kind.needs_secret:
            sections.append(_secrets(obj))
        if scheme:
            sections.append(_refused(obj))
        for title, settings, values in (
            ("Settings", settings_of_case(kind, obj.settings), obj.settings),
            ("Limits", limit_fields(), obj.limits),
        ):
            if values:
                rows = [(field.label, values.get(field.name)) for field in settings]
                sections.append(Facts(title=title, rows=rows))
        armed = MetricDetector.objects.filter(source=obj).values_list("pk", flat=True)
        return [*sections, entries_of("source", obj.pk, parts={"metricdetector": armed})]


def _may_have(request: HttpRequest, kind: Kind[Any]) -> bool:
    return not kind.permission or request.user.has_perm(kind.permission)


def _check_permission(request: HttpRequest, kind: Kind[Any]) -> None:
    if not _may_have(request, kind):
        raise PermissionDenied(f"{kind.label} needs the permission {kind.permission}")


def _warn_of_short(request: HttpRequest, secret: str) -> None:
    if 0 < len(secret) < SHORT:
        messages.warning(
            request,
            f"The secret has fewer than {SHORT} characters: it can be guessed. Set a longer one there and here.",
        )


def _change(source: Source, form: SettingsForm, by: str) -> bool:
    """Change the source; False: the form shows the errors."""
    changes = {name: form.cleaned_data[name] for name in ("enabled", "trusted", "settings", "limits")}
    try:
        change_source(source, changes, secret=form.cleaned_data.get("secret", ""), by=by)
    except Invalid as refused:
        _show(refused, form)
        return False
    return True


def _show(refused: Invalid, form: SettingsForm) -> None:
    for problem in refused.problems:
        field, _, said = problem.partition(": ")
        form.add_error(field if field in form.fields else None, said if field in form.fields else problem)


def _create(form: NewSourceForm, by: str) -> tuple[Source, str] | None:
    """The new source, and its generated secret, if any; None: the form shows the errors."""
    try:
        return _created(form, by)
    except Invalid as refused:
        _show(refused, form)
        return None


def _created(form: NewSourceForm, by: str) -> tuple[Source, str]:
    cleaned = form.cleaned_data
    with transaction.atomic():
        fields = {name: cleaned[name] for name in ("settings", "limits", "enabled", "trusted")}
        source = create_source(cleaned["slug"], kind=form.kind.name, **fields, by=by)
        if form.kind.needs_secret and cleaned["secret"]:
            add_secret(source, cleaned["secret"], by=by)
        elif form.kind.needs_secret and not form.kind.is_secret_given:
            return source, rotate(source, by=by)
        return source, ""


def _is_set_up(source: Source) -> bool:
    """Whether the source's sender has proved itself. For kinds without proofs, a person marks the steps as done."""
    return source.secrets.exclude(last_matched_at=None).exists()


def _to_enter(source: Source, secret: str) -> tuple[str, str]:
    """The secret as it is shown once, and what to do with it."""
    kind = kinds()[source.kind]
    address = address_of(kind, source.slug, secret)
    if has_secret_address(kind):
        return address, "Let the job request this address"
    return secret, f"Enter it at the sender, with the address {address}"


def _notice(source: Source) -> Notice:
    scheme = schemes()[source.kind]
    if not source.enabled:
        return Notice(text="Disabled: its address answers 404.", level="warning")
    if not scheme.is_verified:
        return Notice(text="Unverified: anyone who knows its address can wake your agents.", level="warning")
    if not scheme.needs_secret:
        return Notice(text="Deliveries are proved by a key that only the sender has: there is no secret to enter.")
    now = timezone.now()
    live = [secret for secret in source.secrets.all() if _state(secret, now) == "valid"]
    if not live:
        remedy = "Enter the provider's." if scheme.is_secret_given else "Create a new one, or enter the provider's."
        return Notice(text=f"No valid secret: every delivery is refused. {remedy}", level="bad")
    matched = [secret.last_matched_at for secret in live if secret.last_matched_at]
    if not matched:
        return Notice(text="Its sender has not delivered anything yet that a valid secret proves.", details=[NOT_YET])
    proven = f"The last authenticated delivery came {distance(max(matched))}"
    refused = RefusedDelivery.objects.filter(source=source, status=401, last_at__gt=max(matched))
    if last := refused.order_by("-last_at").first():
        # Matches are recorded at most once per MATCH_NOTED_EVERY: within that span their order is unknown.
        is_later = last.last_at > max(matched) + MATCH_NOTED_EVERY
        return Notice(
            text=format_html(
                "{}. Deliveries were refused {}, the last {}: {}. Compare the sender's secret with the one here.",
                proven,
                "since then" if is_later else "within the same minute",
                distance(last.last_at),
                last.reason,
            ),
            level="warning",
        )
    return Notice(text=f"{proven}.", level="good")


def _refused(source: Source) -> Table:
    shown = RefusedDelivery.objects.filter(source=source).order_by("-hour", "-last_at")[:REFUSED_SHOWN]
    return Table(
        title="Refused deliveries",
        note="Counted by reason and hour, newest first. The sender only receives the status.",
        headers=("Last", "Reason", "Status", "Count", "First", "Last user agent"),
        rows=[
            (moment(one.last_at), one.reason, one.status, f"{one.count:,}", moment(one.first_at), one.user_agent)
            for one in shown
        ],
        empty="No delivery was refused within the retention period.",
    )


def _secrets(source: Source) -> Table:
    now = timezone.now()
    newest_match = source.secrets.order_by("-last_matched_at").exclude(last_matched_at=None).first()
    return Table(
        title="Secrets",
        note="Stored encrypted and never shown again. Several may be valid while the sender is changed to a new one.",
        headers=("No.", "State", "From", "Until", "Last matched", ""),
        rows=[
            (
                secret.pk,
                _state(secret, now),
                moment(secret.not_before),
                moment(secret.not_after) if secret.not_after else "no end",
                moment(secret.last_matched_at),
                "← used by the last delivery" if secret == newest_match else "",
            )
            for secret in source.secrets.order_by("-pk").defer("ciphertext")[:20]
        ],
        empty="None: it connects without a secret."
        if source.kind in runners()
        else "No secrets: every delivery is refused. Create a secret, or enter the provider’s.",
    )


def _state(secret: Secret, now: Any) -> str:
    if secret.not_after and secret.not_after <= now:
        return "ended"
    return "valid" if secret.not_before <= now else "not yet"
