"""Wakeful beside what people use for the same, in turns, on the same servers."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from bench.ground.doors import doors
from bench.ground.drain import Drain, drain_peer, drain_wakeful
from bench.ground.idle import measure_idle
from bench.ground.latency import Latency, latency_of_peer, latency_of_wakeful
from bench.ground.machine import describe
from bench.ground.processes import CONCURRENCY, Ground, Peer, ground

T = TypeVar("T")
Say = Callable[[str], None]
OURS = "Wakeful"


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How often and how much is measured."""

    repeats: int = 3
    count: int = 3000
    slow_count: int = 600  # of DBOS, which takes as long over them
    deliveries: int = 4000
    pings: int = 100
    rate: float = 10
    idle: float = 300  # the maintenance that comes most often, every five minutes, is in it once
    peers: Sequence[str] = field(default_factory=lambda: ("celery", "procrastinate", "dbos"))


def section(say: Say, plan: Plan | None = None) -> Iterator[str]:
    """Lines of Markdown: the machine, the table of deliveries, the table of runs, what idleness costs."""
    plan = plan or Plan()
    say("peers: starting PostgreSQL, Valkey, web, dispatcher, Beat, a worker, and the peers' workers")
    with ground(plan.peers) as here:
        yield from (f"    {line}" for line in describe(here))
        yield f"    Method    {plan.repeats} repeats in turns; median (least to most)"
        yield f"              {CONCURRENCY} children or processes each; {plan.count:,} no-ops a drain, DBOS {plan.slow_count:,}"
        yield f"              {plan.pings} single events at {plan.rate:g}/s; {plan.deliveries:,} deliveries"
        yield ""
        yield from door_table(here, plan, say)
        yield ""
        yield from run_table(here, plan, say)
        yield ""
        yield from idle_lines(here, plan, say)


def door_table(here: Ground, plan: Plan, say: Say) -> Iterator[str]:
    with doors(here) as (bare, ours):
        bare(plan.deliveries // 4)
        ours(plan.deliveries // 4)
        rates: dict[str, list[float]] = {"bare": [], OURS: []}
        for number in range(1, plan.repeats + 1):
            say(f"peers: deliveries, {number} of {plan.repeats}")
            rates["bare"].append(bare(plan.deliveries))
            rates[OURS].append(ours(plan.deliveries))
    yield "| | bare DRF view, one INSERT | Wakeful, `/hooks/` | ratio |"
    yield "|---|---|---|---|"
    ratio = median(rates[OURS]) / median(rates["bare"])
    cells = [spread(rates["bare"], "{:,.0f}"), spread(rates[OURS], "{:,.0f}"), f"{ratio:.2f}"]
    yield f"| durable accepts, per second | {' | '.join(cells)} |"


def run_table(here: Ground, plan: Plan, say: Say) -> Iterator[str]:
    names = [*(peer.name for peer in here.peers), OURS]
    yield f"| | {' | '.join(names)} | {' | '.join(f'ours / {peer.name}' for peer in here.peers)} |"
    yield "|---" * (2 * len(names)) + "|"
    drains: Mapping[str, list[Drain]] = {name: [] for name in names}
    for number in range(plan.repeats + 1):
        say(f"peers: drains, {f'{number} of {plan.repeats}' if number else 'to warm up'}")
        for name, drain in one_drain_each(here, plan, warm_up=not number):
            if number:
                drains[name].append(drain)
    yield row("no-ops drained, per second", drains, lambda drain: drain.rate, "{:,.0f}")
    yield row("CPU per no-op, all processes, ms", drains, lambda drain: drain.cpu * 1e3, "{:.2f}")
    slow: Mapping[str, list[Latency]] = {name: [] for name in names}
    for number in range(1, plan.repeats + 1):
        say(f"peers: single events, {number} of {plan.repeats}")
        for peer in here.peers:
            slow[peer.name].append(latency_of_peer(here, peer, plan.pings, plan.rate))
        slow[OURS].append(latency_of_wakeful(here, plan.pings, plan.rate))
    yield row("committed → first line, p50, ms", slow, lambda latency: latency.p50 * 1e3, "{:.1f}")
    yield row("committed → first line, p99, ms", slow, lambda latency: latency.p99 * 1e3, "{:.1f}")
    yield row("call → first line, p50, ms", slow, lambda latency: latency.from_call_p50 * 1e3, "{:.1f}")


def one_drain_each(here: Ground, plan: Plan, *, warm_up: bool) -> Iterator[tuple[str, Drain]]:
    def size(peer: Peer) -> int:
        return (plan.slow_count if peer.name == "DBOS" else plan.count) // (4 if warm_up else 1)

    for peer in here.peers:
        yield peer.name, drain_peer(here, peer, size(peer))
    yield OURS, drain_wakeful(here, plan.count // (4 if warm_up else 1))


def idle_lines(here: Ground, plan: Plan, say: Say) -> Iterator[str]:
    say(f"peers: idle for {plan.idle:g} s")
    idle = measure_idle(here, plan.idle)
    yield f"Idle for {plan.idle:g} s, all programs up, `sources` too: {idle.statements_per_second:.2f} SQL statements/s."
    most = ", ".join(f"{count} × `{statement} …`" for statement, count in idle.by_statement.most_common(4))
    yield f"Most of them: {most}."
    shares = ", ".join(f"{name} {share:.1%}" for name, share in idle.cpu.items())
    yield f"CPU, of one core: {shares}."


def row(what: str, measured: Mapping[str, Sequence[T]], value: Callable[[T], float], form: str) -> str:
    values = {name: [value(one) for one in ones] for name, ones in measured.items()}
    ratios = [f"{median(values[OURS]) / median(of_peer):.2f}" for name, of_peer in values.items() if name != OURS]
    return f"| {what} | {' | '.join([*(spread(each, form) for each in values.values()), *ratios])} |"


def spread(values: Sequence[float], form: str) -> str:
    middle, least, most = (form.format(value) for value in (median(values), min(values), max(values)))
    return f"{middle} ({least} to {most})"
