"""What `make test` leaves out is reached by `make chaos`, and what it samples is played in full there: both choose by marks."""

import re
import tomllib
from itertools import chain, combinations
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
MAKEFILE = (ROOT / "Makefile").read_text()
MARKS = ("chaos", "sampled", "long", "integration", "promises")
# `make chaos` sets WAKEFUL_FULL, by which a test does more, and `within` grants less time.
DEPENDS_ON_FULL = re.compile(r"WAKEFUL_(?:FULL|PROOF_SECONDS)|tests\.support\.examples import|\bwith within\(")


def is_chosen(expression: str, marks: frozenset[str]) -> bool:
    """pytest reads the expression of `-m` as Python reads one of names."""
    return bool(eval(expression, {}, {mark: mark in marks for mark in MARKS}))


def of_make_test() -> str:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    return str(options[options.index("-m") + 1])


def of_make_chaos(variable: str) -> str:
    assert f'-m pytest -s -m "$({variable})"\n' in MAKEFILE
    [expression] = re.findall(rf"^{variable} = (.+)$", MAKEFILE, re.MULTILINE)
    return str(expression)


def every_set_of_marks() -> list[frozenset[str]]:
    return [frozenset(some) for some in chain.from_iterable(combinations(MARKS, n) for n in range(len(MARKS) + 1))]


def test_tests_that_make_test_leaves_out_are_reached_by_make_chaos() -> None:
    left_out = [marks for marks in every_set_of_marks() if not is_chosen(of_make_test(), marks)]

    assert left_out and all(is_chosen(of_make_chaos("WHOLE"), marks) for marks in left_out)
    assert all(is_chosen(of_make_chaos("SAMPLE"), marks) for marks in left_out if "long" not in marks)


def test_tests_that_make_test_samples_are_reached_by_make_chaos() -> None:
    sampled = [marks for marks in every_set_of_marks() if "sampled" in marks]

    assert all(is_chosen(of_make_chaos("WHOLE"), marks) for marks in sampled)
    assert all(is_chosen(of_make_chaos("SAMPLE"), marks) for marks in sampled if "long" not in marks)


def test_tests_that_make_chaos_does_in_full_have_a_mark() -> None:
    by_folder = {TESTS / "integration", TESTS / "promises"}
    files = [path for path in TESTS.rglob("test_*.py") if path != Path(__file__) and not by_folder & set(path.parents)]
    dependent = {path: text for path in files if DEPENDS_ON_FULL.search(text := path.read_text())}

    assert len(dependent) > 10
    assert not [
        str(path)
        for path, text in dependent.items()
        if not re.search(r"pytest\.mark\.(chaos|sampled)|\bsome_cases\(", text)
    ]


def test_every_file_with_tests_is_collected() -> None:
    others = [
        path for path in TESTS.rglob("*.py") if not path.name.startswith("test_") and path.parent.name != "support"
    ]

    assert not [str(path) for path in others if re.search(r"^(?:async )?def test_", path.read_text(), re.MULTILINE)]
