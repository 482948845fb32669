"""What becomes of a notification at a recipient: it is sent now, held, merged into the held ones, or suppressed. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

from agents.kernel.durations import in_words

ORDER = {"low": 0, "normal": 1, "high": 2}
REQUEST_SPACING = timedelta(minutes=1)  # least time between messages that ask for decisions: strangers may cause many
DAYS_AHEAD = 4  # more than a day with quiet hours that a change of the clock moves, and less than a loop without end


@dataclass(frozen=True, kw_only=True)
class QuietHours:
    """Between two times of day; past midnight if `until` is the earlier one."""

    start: time
    until: time

    def cover(self, local: time) -> bool:
        if self.start < self.until:
            return self.start <= local < self.until
        return local >= self.start or local < self.until


@dataclass(frozen=True, kw_only=True)
class Rules:
    zone: ZoneInfo
    quiet: QuietHours | None = None
    spacing: timedelta = timedelta()
    digest_hour: int | None = None
    least_urgency: str = "low"
    repeat_after: timedelta = timedelta(days=1)
    silenced_until: datetime | None = None
    active: bool = True


@dataclass(frozen=True, kw_only=True)
class News:
    """`is_request`: a run waits for the answer, so it does not wait for spacing."""

    urgency: str
    topic: str
    text: str
    is_request: bool = False

    @property
    def is_urgent(self) -> bool:
        return self.urgency == "high"


@dataclass(frozen=True, kw_only=True)
class Said:
    """The last text about a topic that was or will be sent to the recipient; `is_held`: it still waits."""

    text: str
    at: datetime
    is_held: bool = False


@dataclass(frozen=True, kw_only=True)
class History:
    """`last_at`: the time of the last message, now if one is on its way. `held_until`: a message is held until then."""

    last_at: datetime | None = None
    held_until: datetime | None = None
    said: Said | None = None  # about the topic


@dataclass(frozen=True, kw_only=True)
class Send:
    pass


@dataclass(frozen=True, kw_only=True)
class Hold:
    until: datetime
    reason: str


@dataclass(frozen=True, kw_only=True)
class Merge:
    """`by`: what is held goes out by then."""

    reason: str
    by: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Suppress:
    """`is_rerouted`: the second route gets it instead, if there is one."""

    reason: str
    is_rerouted: bool = False


Verdict = Send | Hold | Merge | Suppress


def decide(rules: Rules, news: News, history: History, now: datetime) -> Verdict:
    """Urgent news passes everything but a silence, and the same text about the same topic."""
    if not rules.active:
        return Suppress(reason="the recipient is inactive", is_rerouted=news.is_urgent)
    if rules.silenced_until and now < rules.silenced_until:
        ends = f"{rules.silenced_until.astimezone(rules.zone):%Y-%m-%d %H:%M}"
        return Suppress(reason=f"silenced until {ends} ({rules.zone.key})", is_rerouted=news.is_urgent)
    if ORDER[news.urgency] < ORDER[rules.least_urgency]:
        return Suppress(reason=f"urgency {news.urgency} is below {rules.least_urgency}")
    if news.topic and history.said and _is_known(rules, news, history.said, now):
        return Suppress(reason="nothing new about its topic")
    if news.is_urgent:
        return Send()
    if news.is_request:
        rules = replace(rules, spacing=min(rules.spacing, REQUEST_SPACING))
        until, reason = earliest(rules, history.last_at, now)
        if until <= now:
            return Send()
        if history.held_until is None:
            return Hold(until=until, reason=reason)
        return Merge(reason="goes out together with the one that is held", by=until)
    if history.held_until:
        return Merge(reason="goes out together with the one that is held")
    until, reason = earliest(rules, history.last_at, now)
    return Hold(until=until, reason=reason) if until > now else Send()


def _is_known(rules: Rules, news: News, said: Said, now: datetime) -> bool:
    # What is held does not keep the same text from going out at once as soon as it is urgent.
    under_way = not (said.is_held and news.is_urgent)
    return said.text == news.text and under_way and now - said.at < rules.repeat_after


def earliest(rules: Rules, last_at: datetime | None, now: datetime) -> tuple[datetime, str]:
    """When a message that is not urgent may go out, and why not before."""
    at, reason = now, ""
    if rules.digest_hour is not None:
        at, reason = next_digest(rules.digest_hour, rules.zone, now), "daily digest"
    elif rules.spacing and last_at and now < last_at + rules.spacing:
        at, reason = last_at + rules.spacing, f"spacing of {in_words(rules.spacing)}"
    if rules.quiet and is_quiet(rules.quiet, rules.zone, at):
        return quiet_end(rules.quiet, rules.zone, at), f"{reason}, then quiet hours" if reason else "quiet hours"
    return at, reason


def is_quiet(quiet: QuietHours, zone: ZoneInfo, at: datetime) -> bool:
    return quiet.cover(at.astimezone(zone).time())


def quiet_end(quiet: QuietHours, zone: ZoneInfo, at: datetime) -> datetime:
    """The next end of the quiet hours: the first or second of two where the clock is set back, an hour later where the clock
    jumps over it."""
    return min(end for end in _times(quiet.until, zone, at) if end > at and not is_quiet(quiet, zone, end))


def next_digest(hour: int, zone: ZoneInfo, now: datetime) -> datetime:
    return min(at for at in _times(time(hour), zone, now, folds=(0,)) if at > now)


def _times(local: time, zone: ZoneInfo, around: datetime, folds: tuple[int, ...] = (0, 1)) -> Iterator[datetime]:
    """The instants at which clocks of this zone show this time, from the day of `around` on."""
    today = around.astimezone(zone).date()
    for day in range(DAYS_AHEAD):
        for fold in folds:
            shown = datetime.combine(today + timedelta(days=day), local, zone).replace(fold=fold)
            yield shown.astimezone(around.tzinfo)
