"""`make chaos`: seeds, each a load with a fault in its midst, and after each the checker. See docs/chaos.md."""

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from tests.support.servers import SETTINGS

PIECE = 30  # seeds of one stack


def main() -> int:
    options = arguments()
    os.environ.update({name: value for name, value in SETTINGS.items() if name not in os.environ})
    os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    os.environ["WAKEFUL_HOME"] = str(options.folder / "home")  # of this process; the stack's has its own
    os.environ["WAKEFUL_APPS"] = ""
    import django

    django.setup()

    from tests.chaos.lab import ALONE, DEFAULT, FAST, IN_PAIRS, lab
    from tests.chaos.play import Totals, play
    from tests.chaos.scenarios import MATRIX, SHARD_POINTS, sample, scenario

    if options.list:
        print("\n".join(f"{seed:4} {one}" for seed, one in enumerate(MATRIX)))
        return 0
    seeds = chosen(options.seeds) if options.seeds else range(len(MATRIX)) if options.all else sample()
    if options.shards < 2:
        seeds = [seed for seed in seeds if scenario(seed).point not in SHARD_POINTS]
    if options.apps != "lab":
        seeds = [seed for seed in seeds if suits_any_agents(scenario(seed))]
    totals = Totals()
    began = time.monotonic()
    for in_pairs, piece in pieces(seeds):
        with lab(
            options.folder / f"piece-{piece[0]}",
            settings={**(DEFAULT if options.shipped else FAST), **in_shards(options.shards)},
            crew=IN_PAIRS if in_pairs else ALONE,
            apps=options.apps,
            invariants=options.invariants,
        ) as here:
            for seed in piece:
                played = play(here, seed, scenario(seed), events=options.events)
                totals.add(played)
                print(played, flush=True)
                for failure in played.failures:
                    print(f"    {failure}", flush=True)
                for finding in played.report.violated:
                    print(f"    {finding.name}:", flush=True)
                    for row in finding.violations[:5]:
                        print(f"      {json.dumps(row, default=str)}", flush=True)
                if not played.holds and not here.drained(1):
                    break  # what is left would be held against the next seed, too
    report(totals, time.monotonic() - began)
    return 1 if totals.violated else 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--all", action="store_true", help="the whole matrix, not a pairwise sample of it")
    parser.add_argument("--seeds", default="", metavar="A-B,C", help="these seeds, such as 0-49 or 7,12")
    parser.add_argument("--shipped", action="store_true", help="with the lease as it is shipped, 8 s, instead of 3 s")
    parser.add_argument("--shards", type=int, default=1, help="of each dispatcher, for batches of any size")
    parser.add_argument("--apps", default="lab", help="a user's own WAKEFUL_APPS, found through PYTHONPATH")
    parser.add_argument(
        "--events", type=Path, help='JSON lines {"type": …, "data": …} to send, for a user\'s own agents'
    )
    parser.add_argument("--invariants", type=Path, help="SQL of a user's own invariants: see manage.py verify")
    parser.add_argument(
        "--folder", type=Path, default=Path(".wakeful/chaos"), help="logs, history (default: %(default)s)"
    )
    parser.add_argument("--list", action="store_true", help="say what each seed is")
    options = parser.parse_args()
    options.folder = options.folder.resolve()
    if options.apps != "lab" and not options.events:
        parser.error("--apps needs --events: what is to be sent to your agents")
    return options


def in_shards(count: int) -> dict[str, str]:
    """The settings of dispatchers with so many shards."""
    from tests.chaos.lab import DEFAULT

    patches = f"{DEFAULT['LAB_PATCHES']},in_parts"
    return {"WAKEFUL_DISPATCH_SHARDS": str(count), "LAB_PATCHES": patches} if count > 1 else {}


def chosen(text: str) -> list[int]:
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


def pieces(seeds: Sequence[int]) -> Iterator[tuple[bool, list[int]]]:
    """Seeds that share a stack, and whether it has its processes in pairs: a seed always meets the same sort."""
    for in_pairs in (True, False):
        rest = iter([seed for seed in seeds if (seed // PIECE % 2 == 0) == in_pairs])
        while piece := list(islice(rest, PIECE)):
            yield in_pairs, piece


def suits_any_agents(one: object) -> bool:
    from tests.chaos.scenarios import Need, Scenario

    assert isinstance(one, Scenario)
    return one.point is None or one.point.need in (Need.LOAD, Need.LOST_CHILD, Need.LOST_WORKER)


def report(totals: object, seconds: float) -> None:
    from tests.chaos.play import Totals

    assert isinstance(totals, Totals)
    print(f"\n{totals.seeds} seeds in {seconds:.0f} s")
    for sort, count in sorted(totals.faults.items()):
        print(f"  {count:6} × {sort}")
    for name, number in totals.numbers.items():
        print(f"  {number:6} {name}")
    if totals.missed:
        print(f"  never came to their point: seeds {', '.join(map(str, totals.missed))}")
    print(f"  violated: seeds {', '.join(map(str, totals.violated))}" if totals.violated else "  every promise held")


if __name__ == "__main__":
    sys.exit(main())
