"""A detector is chosen, tried on the last days of a series, and armed."""

from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from unfold.forms import BaseDialogForm

from agents.kernel.durations import in_words
from config.console.parts import fields
from config.console.parts.dialogs import dialog, leave
from config.console.parts.links import page
from config.console.parts.moments import moment
from config.console.parts.pages import Group, render
from config.console.parts.panel import acting, button
from config.console.parts.sections import Section, Table
from config.console.parts.service_button import service_button
from config.console.sources.form import form_field
from config.console.sources.metrics.chart import Span, draw, figure
from config.console.sources.metrics.series import CHOICES, days_of
from triggers.exceptions import Invalid
from triggers.models import MetricDetector, MetricSeries, Source
from triggers.sources.kind import kinds
from triggers.sources.metrics.arm import MOST_TRIED, arm, disarm, try_on
from triggers.sources.metrics.detector import Detector, detectors
from triggers.sources.metrics.episodes import Change, Transition
from triggers.sources.metrics.metric import Metric
from triggers.sources.metrics.replay import Replayed

ARM = "_arm"
SHOWN = 50


class ChoiceForm(forms.Form):
    """The detector, and what it is tried on."""

    detector = fields.ChoiceField(help_text="Its settings follow.")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["detector"].choices = [(name, one.label) for name, one in detectors().items()]  # type: ignore[attr-defined]


class TrialForm(forms.Form):
    """The settings of one detector."""

    days = fields.ChoiceField(choices=CHOICES.items(), initial="7", label="Try on the last")
    series = fields.ModelChoiceField(queryset=MetricSeries.objects.none(), required=False, empty_label=None)

    def __init__(self, *args: Any, detector: Detector[Any], source: Source, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.detector = detector
        series = MetricSeries.objects.filter(source=source).order_by("name")
        self.fields["series"].queryset = series  # type: ignore[attr-defined]
        self.fields["series"].label_from_instance = lambda one: one.name or "the only one"  # type: ignore[attr-defined]
        self.initial.setdefault("series", series.first())
        for field in detector.fields:
            self.fields[field.name] = form_field(field, None)

    @property
    def settings(self) -> dict[str, Any]:
        return {field.name: self.cleaned_data[field.name] for field in self.detector.fields}

    def groups(self) -> list[Group]:
        settings = [self[field.name] for field in self.detector.fields]
        tried = Group(
            title="Trial",
            note="A trial reads the stored samples. It records nothing.",
            fields=[self["series"], self["days"]],
        )
        return [Group(title=self.detector.label, note=self.detector.help_text, fields=settings), tried]

    def refuse(self, invalid: Invalid) -> None:
        for problem in invalid.problems:
            name, _, text = problem.partition(": ")
            field = name.removeprefix("settings.")
            self.add_error(field if field in self.fields else None, text)


class DisarmForm(BaseDialogForm):  # type: ignore[misc]
    detector = fields.ModelChoiceField(queryset=MetricDetector.objects.none())

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        armed = MetricDetector.objects.filter(source=self.object_id, disarmed_at=None).order_by("-armed_at")
        self.fields["detector"].queryset = armed
        self.fields["detector"].label_from_instance = lambda one: f"{one.name} (no. {one.pk})"


DISARM = dialog("Disarm a detector?", "Its open episodes end without an event.", "Disarm it", DisarmForm)


class MetricButtons:
    """Mixin for the panel of sources."""

    @button("Try a detector", permissions=["triggers.change_source"], icon="query_stats", url_path="detector")
    def try_detector(self, request: HttpRequest, object_id: str) -> HttpResponse:
        source = get_object_or_404(Source, pk=object_id, kind__in=metric_kinds())
        detector = detectors().get(request.GET.get("detector", ""))
        if detector is None:
            return _page(self, request, source, ChoiceForm(), sections=(), submit="Go on", method="get")
        form = TrialForm(request.POST or None, detector=detector, source=source)
        sections: list[Section] = []
        if form.is_valid():
            try:
                if ARM in request.POST:
                    arm(source, detector.name, form.settings, by=acting(request))
                    messages.success(request, f"{detector.label} is armed on {source.slug}.")
                    return leave(request, page("triggers_source", source.pk))
                sections = try_sections(form)
            except Invalid as invalid:
                form.refuse(invalid)
        return _page(self, request, source, form, sections=sections, submit="Try it", method="post")

    @service_button("Disarm a detector", "triggers.change_source", DISARM, icon="notifications_off", url_path="disarm")
    def disarm_detector(self, object_id: str, by: str, detector: MetricDetector) -> str:
        disarm(detector, by=by)
        return f"{detector.name} is disarmed."


def metric_kinds() -> list[str]:
    return [name for name, kind in kinds().items() if isinstance(kind, Metric)]


def try_sections(form: TrialForm) -> list[Section]:
    series: MetricSeries | None = form.cleaned_data["series"]
    if series is None:
        return [Table(title="Trial", headers=(), rows=(), empty="There are no samples yet.")]
    days = days_of(form.cleaned_data["days"])
    replayed = try_on(series, form.detector.name, form.settings, days=float(days), most=MOST_TRIED)
    return [_drawn(series, days, replayed), _transitions(replayed)]


def _drawn(series: MetricSeries, days: str, replayed: Replayed) -> Section:
    spans = [
        Span(
            start=opened.since,
            end=closed.at if closed else replayed.readings[-1][0].at,
            title=f"opened with {opened.value}",
            is_open=closed is None,
        )
        for opened, closed in replayed.episodes
    ]
    learning = next(
        (number for number, (_, reading) in enumerate(replayed.readings) if reading), len(replayed.readings)
    )
    note = (
        f"{len(replayed.readings):,} samples; it learns from the first {learning:,}. "
        f"It would have recorded {len(replayed.transitions)} events of {len(spans)} episodes."
    )
    if sum(observation.value is not None for observation, _ in replayed.readings) == MOST_TRIED:
        note += " Older samples are not tried: there are too many."
    return draw(
        f"Trial on the last {CHOICES[days]} of {series.name or 'the series'}", replayed.readings, spans=spans, note=note
    )


def _transitions(replayed: Replayed) -> Table:
    return Table(
        title="Episodes it would have found",
        note=f"The last {SHOWN}.",
        headers=("Opened", "Since", "Lasted", "Value", "Expected", "Level"),
        rows=[
            (
                moment(_at(opened.at)),
                moment(_at(opened.since)),
                in_words(_at(closed.at) - _at(opened.at)) if closed else "open",
                figure(opened.value),
                figure(opened.reading.expected),
                _worst(replayed, opened),
            )
            for opened, closed in replayed.episodes[: -SHOWN - 1 : -1]
        ],
        empty="None.",
    )


def _worst(replayed: Replayed, opened: Transition) -> int:
    return max(
        one.level
        for one in replayed.transitions
        if one.opened_at == opened.opened_at and one.change is not Change.CLOSED
    )


def _at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _page(
    panel: Any, request: HttpRequest, source: Source, form: Any, *, sections: Any, submit: str, method: str
) -> HttpResponse:
    groups = form.groups() if isinstance(form, TrialForm) else [Group(fields=[form["detector"]])]
    return render(
        panel, request, "admin/console/form.html", title=f"Try a detector on {source.slug}", original=source, form=form,
        groups=groups, choice=None, submit_text=submit, back=page("triggers_source", source.pk), sections=sections,
        media=panel.media + form.media, method=method, also=(ARM, "Arm it") if sections else None,
    )  # fmt: skip
