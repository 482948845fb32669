"""Measure Wakeful on this machine: beside its peers, where its time goes, with LLM agents, at scale, with many waits and
schedules, after faults, with many filters."""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import fields
from functools import partial
from importlib import import_module

from bench import peers

Section = Callable[[Callable[[str], None]], Iterator[str]]
SECTIONS = (
    "peers",
    "door",
    "durable",
    "llm",
    "thinking",
    "profile",
    "legs",
    "waits",
    "schedules",
    "scale",
    "growth",
    "hosts",
    "shards",
    "recovery",
    "notifications",
    "archive",
    "absence",
    "filters",
    "tables",
)
# What fits into a quarter of an hour; the others run if they are named.
UNASKED = ("peers", "durable", "llm", "thinking", "profile")


def main() -> None:
    options = parse()
    for name in options.only or UNASKED:
        section: Section = import_module(f"bench.{name}").section
        if name == "peers":
            section = partial(peers.section, plan=plan_of(options))
        print(f"## {name.capitalize()}\n")
        for line in section(say):
            print(line, flush=True)
        print()


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, help=f"which sections; default: {' '.join(UNASKED)}")
    default = peers.Plan()
    parser.add_argument("--repeats", type=int, default=default.repeats)
    parser.add_argument("--count", type=int, default=default.count, help="no-ops of one drain")
    parser.add_argument("--slow-count", type=int, default=default.slow_count, help="no-ops of a drain of DBOS")
    parser.add_argument("--deliveries", type=int, default=default.deliveries, help="deliveries of one measurement")
    parser.add_argument("--pings", type=int, default=default.pings, help="events of one latency measurement")
    parser.add_argument("--rate", type=float, default=default.rate, help="of them a second")
    parser.add_argument("--idle", type=float, default=default.idle, help="seconds of doing nothing")
    parser.add_argument("--peers", nargs="*", default=default.peers, choices=default.peers, help="beside which")
    return parser.parse_args()


def plan_of(options: argparse.Namespace) -> peers.Plan:
    return peers.Plan(**{field.name: getattr(options, field.name) for field in fields(peers.Plan)})


def say(what: str) -> None:
    print(f"… {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
