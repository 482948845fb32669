"""A detector is chosen, tried on the last days of a series, and armed: on one page."""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.template.defaultfilters import pluralize
from unfold.forms import BaseDialogForm

from agents.kernel.durations import in_words as span
from config.console.parts import fields
from config.console.parts.dialogs import dialog, leave
from config.console.parts.html import format_html
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
FIRST = "threshold"  # the detector that is chosen at first
RESULT = "result"  # where the page has what a trial found
SHOWN = 50
WORDS = {Change.OPENED: "when an episode opens", Change.WORSENED: "when one worsens", Change.CLOSED: "when one closes"}


class TrialForm(forms.Form):
    """The choice of a detector and the settings of each, named `<detector>__<setting>`."""

    detector = fields.RadioField(label="Detector")
    days = fields.ChoiceField(choices=CHOICES.items(), initial="7", label="Try on the last")
    series = fields.ModelChoiceField(queryset=MetricSeries.objects.none(), required=False, empty_label=None)

    def __init__(self, data: Mapping[str, Any] | None, *, source: Source, **kwargs: Any) -> None:
        super().__init__(data, **kwargs)
        detector = self.fields["detector"]
        detector.choices = [  # type: ignore[attr-defined]
            (name, format_html("<b>{}</b>, for {}", one.label, one.use)) for name, one in detectors().items()
        ]
        detector.initial = FIRST
        detector.widget.attrs["x-model"] = "choice"
        series = MetricSeries.objects.filter(source=source).order_by("name")
        self.fields["series"].queryset = series  # type: ignore[attr-defined]
        self.fields["series"].label_from_instance = lambda one: one.name or "the only one"  # type: ignore[attr-defined]
        self.initial.setdefault("series", series.first())
        for name, one in detectors().items():
            for field in one.fields:
                self.fields[f"{name}__{field.name}"] = form_field(field, None)

    def clean(self) -> dict[str, Any]:
        """What stands in the settings of another detector is not used."""
        cleaned = super().clean() or {}
        own = f"{cleaned.get('detector')}__"
        for name in [name for name in self.errors if "__" in name and not name.startswith(own)]:
            del self.errors[name]
        return cleaned

    @property
    def chosen(self) -> Detector[Any]:
        return detectors()[self.cleaned_data["detector"]]

    @property
    def settings(self) -> dict[str, Any]:
        return {field.name: self.cleaned_data[f"{self.chosen.name}__{field.name}"] for field in self.chosen.fields}

    def groups(self) -> list[Group]:
        settings = [
            Group(
                title=one.label,
                note=one.help_text,
                fields=[self[f"{name}__{field.name}"] for field in one.fields],
                when=[name],
            )
            for name, one in detectors().items()
        ]
        tried = Group(
            title="Trial",
            note="A trial reads the stored samples. It records nothing.",
            fields=[self["series"], self["days"]],
        )
        return [Group(fields=[self["detector"]]), *settings, tried]

    def refuse(self, invalid: Invalid) -> None:
        for problem in invalid.problems:
            name, _, text = problem.partition(": ")
            field = f"{self.chosen.name}__{name.removeprefix('settings.')}"
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
        form = TrialForm(request.POST or None, source=source)
        sections: list[Section] = []
        if form.is_valid():
            try:
                if ARM in request.POST:
                    arm(source, form.chosen.name, form.settings, by=acting(request))
                    messages.success(request, f"{form.chosen.label} is armed on {source.slug}.")
                    return leave(request, page("triggers_source", source.pk))
                sections = try_sections(form)
            except Invalid as invalid:
                form.refuse(invalid)
        panel: Any = self
        return render(
            panel, request, "admin/console/form.html", title=f"Try a detector on {source.slug}", original=source, form=form,
            groups=form.groups(), choice=form["detector"], submit_text="Try it", back=page("triggers_source", source.pk),
            sections=sections, result=RESULT, media=panel.media + form.media, method="post",
            also=(ARM, "Arm it") if sections else None,
        )  # fmt: skip

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
    replayed = try_on(series, form.chosen.name, form.settings, days=float(days), most=MOST_TRIED)
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
    note = in_words(replayed)
    if sum(observation.value is not None for observation, _ in replayed.readings) == MOST_TRIED:
        note += " Older samples are not tried: there are too many."
    return draw(
        f"Trial on the last {CHOICES[days]} of {series.name or 'the series'}", replayed.readings, spans=spans, note=note
    )


def in_words(replayed: Replayed) -> str:
    """What the detector would have recorded, and what it did with the samples."""
    samples = [reading for observation, reading in replayed.readings if observation.value is not None]
    learned = sum(reading is None for reading in samples)
    if samples and learned == len(samples):
        return f"It would have recorded no event: it was still learning after {_counted(len(samples), 'sample')}."
    judged = f"It would have judged {_counted(len(samples) - learned, 'sample')}"
    judged += f", after it had learned from {learned:,}." if learned else "."
    if not replayed.episodes:
        return f"It would have recorded no event: nothing was out. {judged}"
    counts = Counter(one.change for one in replayed.transitions)
    parts = [f"{counts[change]:,} {word}" for change, word in WORDS.items() if counts[change]]
    events = _counted(len(replayed.transitions), "event")
    still_open = " The last episode is open." if replayed.episodes[-1][1] is None else ""
    return f"It would have recorded {events}: {', '.join(parts)}.{still_open} {judged}"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{pluralize(count)}"


def _transitions(replayed: Replayed) -> Table:
    return Table(
        title="Episodes it would have found",
        note=f"The last {SHOWN}.",
        headers=("Opened", "Since", "Lasted", "Value", "Expected", "Level"),
        rows=[
            (
                moment(_at(opened.at)),
                moment(_at(opened.since)),
                span(_at(closed.at) - _at(opened.at)) if closed else "open",
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
