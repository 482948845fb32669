"""Send a test event: a sample of the source's kind, of a webhook signed with its real secret and through its real door."""

from dataclasses import dataclass, replace
from uuid import UUID

from agents.guards.atomic import not_in_atomic_body
from runs.db import host_clock
from runs.models.audit import record
from runs.network.site import site
from triggers.accept import Incoming, accept
from triggers.exceptions import Invalid
from triggers.models import Source
from triggers.sources.http.answers import status_of
from triggers.sources.http.headers import Headers
from triggers.sources.kind import Kind, kinds
from triggers.sources.settings import InvalidSettings
from triggers.sources.webhooks.door import Arrival, take
from triggers.sources.webhooks.endpoint import Endpoint, find_endpoint
from triggers.sources.webhooks.proof import Rejected
from triggers.sources.webhooks.refusals import refusal_of
from triggers.sources.webhooks.scheme import Sample, schemes

MARK = "Wakeful-Test"  # a header by which an agent can recognise a test event


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The door's answer to a test event: the event, or the reason of the refusal."""

    status: int
    event_id: UUID | None = None
    reason: str = ""


def can_be_tried(source: Source) -> bool:
    """Whether a test event can be made: some deliveries can only be proved by their sender."""
    kind = kinds().get(source.kind)
    if kind and type(kind).sample_event is not Kind.sample_event:
        return True
    scheme = schemes().get(source.kind)
    try:
        return scheme is not None and scheme.sample(scheme.clean_settings(source.settings)) is not None
    except InvalidSettings:
        return False


@not_in_atomic_body
def send_test_event(source: Source, *, by: str) -> Trial:
    """Sign a sample with the newest valid secret and deliver it; of a kind that records events by itself, record one. The event is
    a real one: triggers that match it start runs. Only the limit of addresses is passed over, as Wakeful itself is the sender."""
    trial = _tried(source)
    event = {"event": str(trial.event_id)} if trial.event_id else {"reason": trial.reason}
    record(by, "send test event", source, status=trial.status, **event)
    return trial


def _tried(source: Source) -> Trial:
    try:
        sample = _own_sample(source)
    except Invalid as error:
        return Trial(status=409, reason=str(error))
    if sample:
        [accepted] = accept([sample])
        return Trial(status=status_of(accepted), event_id=accepted.event_id)
    try:
        taken = take(source.slug, _arrival(_signed(find_endpoint(source.slug))))
    except Exception as error:
        if (refusal := refusal_of(error)) is None:
            raise
        return Trial(status=refusal.status, reason=refusal.reason or str(error))
    if not taken.events:
        return Trial(status=200, reason="the sample is a handshake, and no event")
    return Trial(status=status_of(taken.events[0]), event_id=taken.events[0].event_id)


def _own_sample(source: Source) -> Incoming | None:
    """The sample of a kind that records events by itself."""
    kind = kinds().get(source.kind)
    sample = kind.sample_event(source.pk, source.slug) if kind else None
    return replace(sample, headers={MARK.lower(): "1"}) if sample else None


def _signed(endpoint: Endpoint) -> Sample:
    scheme, settings = endpoint.scheme, endpoint.scheme.clean_settings(endpoint.settings)
    sample = scheme.sample(settings)
    if sample is None:
        raise Invalid(["kind: only the sender can prove a delivery of this kind"])
    newest = max(endpoint.secrets, key=lambda secret: secret.id, default=None)
    if scheme.needs_secret and newest is None:
        raise Rejected("the source has no live secret")
    addressed = replace(sample, url=f"{site()}/hooks/{endpoint.slug}/")
    return scheme.signed(addressed, newest.value if newest else b"", host_clock.now(), settings)


def _arrival(sample: Sample) -> Arrival:
    # A header travels as latin-1 text (PEP 3333).
    fields = {name: value.encode().decode("latin-1") for name, value in sample.headers.items()}
    return Arrival(
        method=sample.method, url=sample.url, headers=Headers({**fields, MARK: "1"}), body=sample.body, client=None
    )
