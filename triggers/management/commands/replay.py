import json
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError
from rest_framework.utils.encoders import JSONEncoder

from runs.exceptions import IllegalState
from runs.management.each import EachCommand
from runs.management.operator import operator
from triggers.api.replays import ReplayDetailSerializer
from triggers.dispatch.offers import offer_errors
from triggers.events.search import Search
from triggers.exceptions import RuleError
from triggers.management.named import event_named, trigger_named
from triggers.management.search_arguments import add_search_arguments, search_of
from triggers.models import Trigger
from triggers.replays.preview import MOST, preview, sample
from triggers.replays.replay import replay
from triggers.replays.start import LEAST_URGENT, USUAL_RATE, start_replay, within


class Command(EachCommand):
    help = (
        "Dispatch events again; they start new runs. Name events, or search for them (--type, --since, …): then they are replayed "
        "at a rate, in the order of their arrival; see `manage.py replays`. With --errors: dispatch again all events that ended in "
        "an error; an event that has a run gets no second run."
    )
    noun = "event"
    nargs = "*"

    def add_arguments(self, parser: ArgumentParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--trigger", metavar="SLUG", action="append", default=[],
            help="only to this trigger, instead of all that match; repeat it for several",
        )  # fmt: skip
        parser.add_argument("--all", action="store_true", help="a search without a condition: all events, of all time")
        parser.add_argument("--errors", action="store_true", help="all events whose dispatch ended in an error")
        add_search_arguments(parser)
        parser.add_argument(
            "--rate", type=float, metavar="N", help=f"events per second of a search (default: {USUAL_RATE:g})"
        )
        parser.add_argument(
            "--priority", type=int, metavar="N",
            help=f"priority of the runs of a search: 0 is most urgent, {LEAST_URGENT} (the default) least",
        )  # fmt: skip
        parser.add_argument("--preview", action="store_true", help="say what a search would replay, and replay nothing")

    def handle(
        self, *, ids: Sequence[str], as_json: bool, errors: bool = False, since: datetime | None = None, **options: Any
    ) -> None:
        search = search_of(start=since, **options)
        if not errors and search == Search() and not options["all"]:
            if not ids:
                raise CommandError("Name events, search for them (e.g. --since 24h), or give --errors or --all.")
            return super().handle(ids=ids, as_json=as_json, **options)
        triggers = [trigger_named(slug) for slug in options["trigger"]]
        if errors:
            if ids or search != Search(start=since) or len(triggers) > 1 or options["all"]:
                raise CommandError("--errors takes --since and one --trigger only.")
            return self._errors(triggers[0] if triggers else None, since, as_json)
        if ids:
            raise CommandError("Name events or search for them, not both.")
        try:
            if options["preview"]:
                return self._preview(within(search), triggers, as_json)
            chosen = {name: options[name] for name in ("rate", "priority")}
            return self._start(search, triggers, as_json, **chosen, everything=options["all"])
        except (RuleError, IllegalState) as error:
            raise CommandError(str(error)) from None

    def _errors(self, trigger: Trigger | None, since: datetime | None, as_json: bool) -> None:
        count = offer_errors(trigger=trigger, since=since, by=operator())
        done = {"trigger": trigger and trigger.slug, "since": since and since.isoformat(), "events": count}
        self.stdout.write(json.dumps(done) if as_json else f"{count} events are dispatched again, in batches")

    def _start(
        self, search: Search, triggers: Sequence[Trigger], as_json: bool, *, rate: float | None, **chosen: Any
    ) -> None:
        rate = USUAL_RATE if rate is None else rate
        started = start_replay(search, triggers=triggers, rate=rate, **chosen, by=operator())
        if as_json:
            self.stdout.write(json.dumps(ReplayDetailSerializer(started).data, cls=JSONEncoder, indent=2))
        else:
            self.stdout.write(f"{started.pk} {started.total} events at {started.rate:g} per second")

    def _preview(self, search: Search, triggers: Sequence[Trigger], as_json: bool) -> None:
        found, sampled = preview(search, triggers), sample(search, triggers)
        if as_json:
            done = {
                "events": found.events,
                "without_payload": found.without_payload,
                "unheard": found.unheard,
                "triggers": {one.trigger.slug: one.events for one in found.listeners},
                "sample": {str(one.event.pk): [trigger.slug for trigger in one.triggers] for one in sampled},
            }
            self.stdout.write(json.dumps(done, indent=2))
            return
        more = f"more than {MOST}" if found.is_capped else found.events
        self.stdout.write(
            f"{more} events; {found.without_payload} without payload and {found.unheard} unheard are skipped"
        )
        for listener in found.listeners:
            self.stdout.write(f"  {listener.trigger.slug}: listens to {listener.events}")
        for one in sampled:
            matching = ", ".join(trigger.slug for trigger in one.triggers) or "no trigger"
            self.stdout.write(f"  {one.event.pk} matches {matching} today (try it: manage.py shadow {one.event.pk})")

    def act(self, id: str, *, trigger: Sequence[str] = (), **options: Any) -> Mapping[str, Any]:
        event = event_named(id)
        triggers: list[Trigger | None] = [trigger_named(slug) for slug in trigger]
        replays = [replay(event, trigger=one, by=operator()) for one in triggers or [None]]
        return {"event": id, "trigger": ", ".join(trigger) or None, "replay_id": ", ".join(map(str, replays))}

    def describe(self, done: Mapping[str, Any]) -> str:
        return f"{done['event']} replay {done['replay_id']}"
