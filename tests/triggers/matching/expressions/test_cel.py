"""Expressions are bounded before the parser sees them, and what is known of one without evaluating it is true."""

import re
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triggers.matching.expressions.cel import (
    MAX_LENGTH,
    MISSING,
    ExpressionError,
    check_condition,
    check_expression,
    compile_expression,
    context_of,
    field_at,
    load_data,
    value,
)
from triggers.matching.expressions.conditions import Equality, Prefix, Range, conditions_of
from triggers.matching.expressions.tokens import tokens_of

# What is too long or too deep, with the word of the refusal that names the limit.
OVER_A_LIMIT = [
    ("1+" * 6000 + "1==1", "characters"),
    ("event.data" + ".a" * 900, "nested deeper than 32 levels"),
    ("1+" * 400 + "1", "joins more than 32 parts"),
    ("(" * 100_000, "characters"),
    ("[" * 40 + "]" * 40, "nested deeper than 32 levels"),
    (f'event.data.x == "{"a" * MAX_LENGTH}"', "characters"),
]


@pytest.mark.parametrize(("text", "limit"), OVER_A_LIMIT)
def test_an_expression_over_a_limit_is_refused_by_the_name_of_the_limit(text: str, limit: str) -> None:
    with pytest.raises(ExpressionError, match=limit) as refusal:
        compile_expression(text)
    assert "shorten it" in str(refusal.value) and len(str(refusal.value)) < 300


def test_brackets_and_operators_within_a_string_are_text() -> None:
    compile_expression(f'event.subject == "{"((((++++" * 100}"')
    compile_expression(f"event.data.x in [{', '.join(f'{n}' for n in range(400))}]")


def test_many_alternatives_are_one_expression() -> None:
    text = " || ".join(f"event.data.n == {number}" for number in range(80))
    assert value(compile_expression(text), context_of({"data": {"n": 79}})) is True


# The largest expressions of each shape are refused or answered where the stack is a sixteenth of what threads have by default.
LARGEST = """
import threading
from triggers.matching.expressions.cel import MAX_LENGTH, compile_expression, context_of, value

def filled(opening, inner, closing=""):
    return opening * ((MAX_LENGTH - len(inner)) // (len(opening) + len(closing))) + inner + \
        closing * ((MAX_LENGTH - len(inner)) // (len(opening) + len(closing)))

def work():
    for text in (
        filled("1+", "1"), filled("event.data.a&&", "true"), "event.data" + ".a" * 990, "event.data" + "[0]" * 660,
        filled("!", "true"), filled("-", "1"), filled("(", "1", ")"), filled("[", "1", "]"), filled("{1:", "1", "}"),
        filled("[1].all(x,", "true", ")"), filled("true?1:", "1"), filled("size(", "'a'", ")"), "event.data" + ".a()" * 490,
    ):
        try:
            value(compile_expression(text), context_of({"data": {}}))
        except ValueError:
            pass

threading.stack_size(512 * 1024)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print("alive")
"""


def test_the_largest_expressions_allowed_fit_a_small_stack() -> None:
    done = subprocess.run([sys.executable, "-c", LARGEST], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


@pytest.mark.parametrize(
    ("text", "instead"),
    [
        ("event.data.items.filter(x, x.price > 100).size() > 0", "exists(x, x.price > 100)"),
        ("event.data.open || event.data.items.map(i, i.sku).size() > 3", "exists("),
        ("event.data.items.exists(i, i.parts.filter(p, p.n > 1).size() > 0)", "exists(p, p.n > 1)"),
    ],
)
def test_a_filter_that_builds_a_list_is_refused_when_it_is_saved_with_the_words_to_write_instead(
    text: str, instead: str
) -> None:
    with pytest.raises(ExpressionError) as refusal:
        check_condition(text)
    assert instead in str(refusal.value) and "quadratic" in str(refusal.value)
    assert refusal.value.fault and refusal.value.fault.marked in ("filter", "map")
    check_expression(text)  # an input may build a list


def test_a_field_that_is_called_filter_is_no_call() -> None:
    check_condition('event.data.filter == "a" && event.data.map["x"] == 1 && event.data.items.exists(map, map.n > 1)')


def test_one_number_beyond_64_bits_does_not_spoil_the_rest_of_the_payload() -> None:
    data = load_data('{"big": 123456789012345678901234567890, "just": 9223372036854775808, "n": 3}')
    context = context_of({"data": data})
    assert value(compile_expression("event.data.n == 3 && event.data.big > 1.0e29"), context) is True
    assert value(compile_expression("event.data.just > 9.2e18"), context) is True


def test_every_integer_of_64_bits_stays_an_integer() -> None:
    for number in (-(2**63), 2**63 - 1):
        context = context_of({"data": load_data(f'{{"n": {number}}}')})
        assert value(compile_expression("string(event.data.n)"), context) == str(number)


def test_an_error_names_its_cause_and_shows_nothing_else_of_the_payload() -> None:
    context = context_of({"data": {"secret": "sesame", "n": "4"}})
    for text, cause in (
        ("event.data.amount > 3", "there is no field 'amount'"),
        ("event.data.n > 3", "does not go with these types: string, int64"),
        ("1 / (event.data.n.size() - 1) > 0", "divide by zero"),
    ):
        with pytest.raises(ExpressionError, match=re.escape(cause)) as error:
            value(compile_expression(text), context)
        assert "sesame" not in str(error.value)


@pytest.mark.parametrize(
    ("text", "path", "literals"),
    [
        ('event.data.x == "a"', ("data", "x"), ("a",)),
        ("'a' == event.data.x.y", ("data", "x", "y"), ("a",)),
        ('event.subject == "s" && has(event.data.x)', ("subject",), ("s",)),
        ('event.data.n > 3 && event.data.x in ["a", "b"]', ("data", "x"), ("a", "b")),
        ("event.data.n == 7 && true", ("data", "n"), (7,)),
        ("event.data.paid == true", ("data", "paid"), (True,)),
    ],
)
def test_an_equality_that_must_hold_is_known(text: str, path: tuple[str, ...], literals: tuple[object, ...]) -> None:
    assert compile_expression(text).equalities == (Equality(path=path, literals=literals),)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        'event.data.x == "a" || event.data.y == "b"',
        'event.data.x == "a" ? true : false',
        'event.data.x == "a" == false',
        'event.data.x != "a"',
        '!(event.data.x == "a")',
        r'event.data.x == "\u0061"',
        'event.data.x == r"a"',
        'event.data["x"] == "a"',
        'event.data.items.exists(event, event.x == "a")',
        "event.data.x == event.data.y",
        "event.data.n == 1.0",
        'event.data.x in ["a", event.subject]',
        'event.data == "a"',
        'size(event.data.x) == 1',
    ],
)  # fmt: skip
def test_an_uncertain_equality_is_not_indexed(text: str) -> None:
    assert compile_expression(text).equalities == ()


@pytest.mark.parametrize(
    ("text", "reads_data", "is_linear"),
    [
        ('event.type == "a" && event.subject.startsWith("b")', False, True),
        ("event.data.x > 3 && has(event.data.y)", True, True),
        ("size(event.data) > 0", True, True),
        ("event.data.items.filter(x, x.n > 0).size() > 3", True, False),
        ("event.data.items.map (x, x)", True, False),
        ('event.subject.matches("a.*")', False, False),
    ],
)
def test_reads_and_cost_of_an_expression_are_known(text: str, reads_data: bool, is_linear: bool) -> None:
    found = compile_expression(text)
    assert (found.reads_data, found.is_linear) == (reads_data, is_linear)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(-3, 3)
    | st.sampled_from(["a", "b", "1", "", "abc", "ab"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=5,
)
LITERALS = st.sampled_from(['"a"', "'b'", '"1"', "1", "0", "3", "true", "false"])
COMPARED = st.tuples(
    st.sampled_from(["event.data.x", "event.data.y", "event.data.x.y"]), st.sampled_from(["<", "<=", ">", ">="])
)
NUMBERS = st.sampled_from(["0", "1", "3", "-1", "-2", "1.5", "0.0", "-0.5"])
ORDERED = st.builds(lambda pair, number: f"{pair[0]} {pair[1]} {number}", COMPARED, NUMBERS) | st.builds(
    lambda pair, number: f"{number} {pair[1]} {pair[0]}", COMPARED, NUMBERS
)
BEGINNINGS = st.builds(
    "event.data.{}.startsWith({})".format, st.sampled_from(["x", "y", "x.y"]), st.sampled_from(['"a"', "'ab'", '""'])
)
OPERANDS = st.one_of(
    ORDERED,
    BEGINNINGS,
    st.builds("event.data.{} == {}".format, st.sampled_from(["x", "y", "x.y"]), LITERALS),
    st.builds('event.data.{} in ["a", "1"]'.format, st.sampled_from("xyz")),
    st.sampled_from(
        ["event.data.z > 1", "dyn(1)", "true", "has(event.data.x)", "event.data.x.all(i, i > 0)", "1 / 0 == 1"]
    ),
)
FILTERS = st.lists(OPERANDS, min_size=1, max_size=3).map(" && ".join)


@given(FILTERS, VALUES)
def test_a_filter_is_false_wherever_a_field_it_compares_differs(text: str, data: object) -> None:
    """What the index relies on, held against the library itself."""
    from triggers.matching.index import _comparable

    expression = compile_expression(text)
    try:
        result = value(expression, context_of({"data": data}))
    except ExpressionError:
        result = MISSING
    for each in expression.equalities:
        found = data
        for name in each.path[1:]:
            found = found.get(name, MISSING) if isinstance(found, dict) else MISSING
        if found is not MISSING and _comparable(found) not in {_comparable(literal) for literal in each.literals}:
            assert result is False


@pytest.mark.parametrize(
    ("text", "conditions"),
    [
        ("event.data.n > 3", [Range(path=("data", "n"), low=3)]),
        ("3 <= event.data.n", [Range(path=("data", "n"), low=3, with_low=True)]),
        ("event.data.n < -1.5 && true", [Range(path=("data", "n"), high=-1.5)]),
        ("event.data.n > 1 && event.data.n <= 2", [Range(path=("data", "n"), low=1, high=2, with_high=True)]),
        ("event.data.n > 1 && event.data.n > 2", [Range(path=("data", "n"), low=1), Range(path=("data", "n"), low=2)]),
        ('event.data.x.startsWith("a")', [Prefix(path=("data", "x"), text="a")]),
        ('event.subject.startsWith("a") && event.data.n > 0', [Prefix(path=("subject",), text="a"), Range(path=("data", "n"), low=0)]),
        ("event.data.n > 1 || true", []),
        ("!(event.data.n > 1)", []),
        ("event.data.n + 1 > 1", []),
        ("event.data.n > 1 > 2", []),
        ("event.data.n > 1e3", []),
        ("event.data.n > 1u", []),
        ("size(event.data.n) > 1", []),
        ('event.subject > "1"', []),
        ('event.time > timestamp("2026-01-01T00:00:00Z")', []),
        ('event.data.x.startsWith("")', []),
        (r'event.data.x.startsWith("\u0061")', []),
        ('event.data.x.startsWith(event.subject)', []),
        ('"a".startsWith(event.data.x)', []),
    ],
)  # fmt: skip
def test_the_conditions_that_an_index_knows(text: str, conditions: list[object]) -> None:
    assert list(conditions_of(tokens_of(text))) == conditions


@given(FILTERS, VALUES)
def test_a_filter_is_false_wherever_a_number_or_a_text_does_not_meet_its_condition(text: str, data: object) -> None:
    expression = compile_expression(text)
    try:
        result = value(expression, context_of({"data": data}))
    except ExpressionError:
        result = MISSING
    for each in expression.conditions:
        found = field_at(data, each.path[1:])
        if isinstance(each, Prefix) and isinstance(found, str) and not found.startswith(each.text):
            assert result is False
        if isinstance(each, Range) and isinstance(found, (int, float)) and not isinstance(found, bool):
            is_above = each.low is None or found > each.low or (each.with_low and found == each.low)
            is_below = each.high is None or found < each.high or (each.with_high and found == each.high)
            assert (is_above and is_below) or result is False
