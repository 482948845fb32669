"""Deliveries of events to subscriptions: each attempt with the first bytes of its answer."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest

from config.console.access.audit import entries_of
from config.console.parts.bulk import carry_out
from config.console.parts.dialogs import dialog
from config.console.parts.html import format_html
from config.console.parts.links import event_link, link, page
from config.console.parts.moments import moment
from config.console.parts.panel import Panel, allowed, column, newest, time_column
from config.console.parts.sections import Facts, LiveNotice, Notice, Section
from config.console.parts.service_button import service_button
from config.console.sources.outbound.words import COLOURS, attempts_of
from triggers.models import EventDelivery, Subscription
from triggers.outbound.redeliver import redeliver

CAN_BE_SENT_AGAIN = Q(status__in=[EventDelivery.Status.DELIVERED, EventDelivery.Status.FAILED])


class StatusFilter(admin.SimpleListFilter):
    title = "status"
    parameter_name = "status"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(status.value, status.value) for status in EventDelivery.Status]

    def queryset(self, request: HttpRequest, queryset: QuerySet[EventDelivery]) -> QuerySet[EventDelivery]:
        return newest(queryset).filter(status=self.value()) if self.value() else queryset


class SubscriptionFilter(admin.SimpleListFilter):
    title = "subscription"
    parameter_name = "name"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        return [(slug, slug) for slug in Subscription.objects.order_by("slug").values_list("slug", flat=True)[:100]]

    def queryset(self, request: HttpRequest, queryset: QuerySet[EventDelivery]) -> QuerySet[EventDelivery]:
        if not self.value():
            return queryset
        return queryset.filter(
            subscription_id__in=list(Subscription.objects.filter(slug=self.value()).values_list("pk", flat=True))
        )


REDELIVER = dialog(
    "Send it again?", "With the same webhook-id: a receiver that has handled it recognises it.", "Redeliver"
)


@admin.register(EventDelivery)
class EventDeliveryPanel(Panel):
    """Deliveries, one for each event and subscription."""

    list_display = ("when", "status_label", "to", "type", "why", "attempts")
    list_display_links = ("when", "status_label")
    list_filter = (StatusFilter, SubscriptionFilter)
    ordering = ("-id",)
    list_select_related = ("event",)
    actions = ("redeliver_chosen",)
    actions_detail = ("redeliver_this",)
    has_redeliver_permission = allowed("triggers.redeliver_subscription")

    when = time_column("entered", "entered_at")

    def get_queryset(self, request: HttpRequest) -> QuerySet[EventDelivery]:
        return super().get_queryset(request).defer("event__data", "event__body", "event__headers")

    @column("status", label=COLOURS)
    def status_label(self, delivery: EventDelivery) -> str:
        return delivery.status

    @column("subscription")
    def to(self, delivery: EventDelivery) -> str:
        return delivery.name

    @column("why", empty_value="–")
    def why(self, delivery: EventDelivery) -> str | None:
        return delivery.reason or None

    @column("event")
    def type(self, delivery: EventDelivery) -> Any:
        return event_link(delivery.event_id, delivery.event.type)

    @service_button(
        "Redeliver",
        "triggers.redeliver_subscription",
        REDELIVER,
        icon="replay",
        url_path="redeliver",
        variant="primary",
        done="It is sent again.",
    )
    def redeliver_this(self, object_id: str, by: str) -> None:
        redeliver(UUID(object_id), by=by)

    def possible_buttons(self, request: HttpRequest, object_id: str) -> Mapping[str, bool]:
        return {"redeliver_this": EventDelivery.objects.filter(CAN_BE_SENT_AGAIN, pk=object_id).exists()}

    @admin.action(description="Redeliver", permissions=["redeliver"])
    def redeliver_chosen(self, request: HttpRequest, queryset: QuerySet[EventDelivery]) -> None:
        carry_out(
            request,
            queryset,
            _redeliver,
            done="sent again",
            legal=CAN_BE_SENT_AGAIN,
            otherwise="on its way already, or not to be sent",
        )

    def sections(self, request: HttpRequest, obj: EventDelivery) -> list[Section]:
        subscription = Subscription.objects.filter(pk=obj.subscription_id).only("slug").first()
        rows = [
            ("Event", event_link(obj.event_id, obj.event.type)),
            (
                "Subscription",
                link(page("triggers_subscription", subscription.pk), obj.name) if subscription else obj.name,
            ),
            ("webhook-id", format_html("<code>{}</code>", obj.webhook_id)),
            ("Entered or redelivered", moment(obj.entered_at)),
            ("Due", obj.due_at and moment(obj.due_at)),
            ("Ended", obj.ended_at and moment(obj.ended_at)),
            ("Attempts since then", obj.attempts),
        ]
        return [_notice(obj), Facts(rows=rows), attempts_of(obj), entries_of("eventdelivery", obj.pk)]


def _redeliver(delivery: EventDelivery, *, by: str) -> None:
    redeliver(delivery.pk, by=by)


def _notice(delivery: EventDelivery) -> Notice:
    level = {"delivered": "good", "failed": "bad", "error": "bad"}.get(delivery.status, "info")
    text = f"{delivery.status.capitalize()}{f': {delivery.reason}' if delivery.reason else ''}."
    is_open = delivery.due_at is not None
    return LiveNotice(text=text, level=level) if is_open else Notice(text=text, level=level)
