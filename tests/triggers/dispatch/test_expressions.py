"""Expressions are bounded before the parser sees them, and what is known of one without evaluating it is true."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from triggers.dispatch.expressions import (
    MAX_LENGTH,
    MAX_NESTING,
    MAX_OPERATORS,
    MISSING,
    Equality,
    ExpressionError,
    compile_expression,
    context_of,
    value,
)

# Each of them, or a longer one like it, once ended the process or held the GIL.
OVER_A_LIMIT = [
    ("1+" * 6000 + "1==1", "characters"),
    ("event" + ".a" * 900, "operators, dots and brackets"),
    ("1+" * (MAX_OPERATORS + 1) + "1", "operators, dots and brackets"),
    ("(" * 100_000, "characters"),
    ("[" * (MAX_NESTING + 1) + "]" * (MAX_NESTING + 1), "nested brackets"),
    (f'event.data.x == "{"a" * MAX_LENGTH}"', "characters"),
]


@pytest.mark.parametrize(("text", "limit"), OVER_A_LIMIT)
def test_an_expression_over_a_limit_is_refused_by_the_name_of_the_limit(text: str, limit: str) -> None:
    with pytest.raises(ExpressionError, match=limit) as refusal:
        compile_expression(text)
    assert "at most" in str(refusal.value) and len(str(refusal.value)) < 300


def test_brackets_and_operators_within_a_string_are_text() -> None:
    compile_expression(f'event.subject == "{"((((++++" * 100}"')
    compile_expression(f"event.data.x in [{', '.join(f'{n}' for n in range(400))}]")


# What is just within the limits compiles where the stack is a quarter of what threads have in the web server.
LARGEST = """
import threading
from triggers.dispatch.expressions import MAX_NESTING as deep, MAX_OPERATORS as many, compile_expression, context_of, value

def work():
    for text in (
        "+".join(["1"] * many), "event" + ".a" * many, "event" + "[0]" * (many // 2), "!" * many + "true", "-" * many + "1",
        "(" * deep + "1" + ")" * deep, "[" * deep + "1" + "]" * deep, "[1].all(x," * deep + "true" + ")" * deep,
        "&&".join(["event.a"] * (many // 2)), "(" * deep + "+".join(["1"] * (many - 2 * deep)) + ")" * deep,
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
        ("size(event) > 0", True, True),
        ("event.data.items.filter(x, x.n > 0).size() > 3", True, False),
        ("event.data.items.map (x, x)", True, False),
        ('event.subject.matches("a.*")', False, False),
    ],
)
def test_reads_and_cost_of_an_expression_are_known(text: str, reads_data: bool, is_linear: bool) -> None:
    found = compile_expression(text)
    assert (found.reads_data, found.is_linear) == (reads_data, is_linear)


SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-3, 3) | st.sampled_from(["a", "b", "1", ""])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=5,
)
LITERALS = st.sampled_from(['"a"', "'b'", '"1"', "1", "0", "3", "true", "false"])
OPERANDS = st.one_of(
    st.builds("event.data.{} == {}".format, st.sampled_from(["x", "y", "x.y"]), LITERALS),
    st.builds('event.data.{} in ["a", "1"]'.format, st.sampled_from("xyz")),
    st.sampled_from(["event.data.z > 1", "1", "true", "has(event.data.x)", "event.data.x.all(i, i > 0)", "1 / 0 == 1"]),
)
FILTERS = st.lists(OPERANDS, min_size=1, max_size=3).map(" && ".join)


@given(FILTERS, VALUES)
def test_a_filter_is_false_wherever_a_field_it_compares_differs(text: str, data: object) -> None:
    """What the index relies on, held against the library itself."""
    from triggers.dispatch.index import _comparable

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
