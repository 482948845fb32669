"""The error of an expression that is refused on save names the place; a filter that does not match is taken apart into its clauses."""

from datetime import UTC, datetime

import pytest
from hypothesis import given

from tests.triggers.matching.expressions.test_cel import FILTERS
from triggers.matching.expressions.cel import ExpressionError, check_expression, compile_expression, context_of, value
from triggers.matching.expressions.clauses import Clause, clauses_of
from triggers.matching.expressions.faults import FUNCTIONS, Fault


def fault_in(text: str) -> Fault:
    with pytest.raises(ExpressionError) as refusal:
        check_expression(text)
    assert refusal.value.fault
    assert str(refusal.value) == str(refusal.value.fault)
    return refusal.value.fault


@pytest.mark.parametrize(
    ("text", "line", "column", "marked", "reason"),
    [
        ("event.data.amount = 3", 1, 19, "=", "use == to compare"),
        ("event.data.a == 1 and event.data.b == 2", 1, 19, "and", "use &&"),
        ('event.data.x == "abc', 1, 17, '"', "no closing quote"),
        ("(event.data.a == 1", 1, 1, "(", "never closed"),
        ("event.data.a == 1)", 1, 18, ")", "no such bracket is open"),
        ("event.data.a == 1 &&", 1, 21, "", "missing"),
        ("event.data.a == 1\n  && event.data.b == == 2", 2, 22, "==", "not expected here"),
        ('event.subject.startswith("a")', 1, 15, "startswith", "did you mean startsWith?"),
        ("event.amount > 3", 1, 7, "amount", "use event.data.amount"),
        ("event.tipe == 'a'", 1, 7, "tipe", "did you mean type?"),
        ("data.amount > 3", 1, 1, "data", "use event ("),
        ("event.data.paid == True", 1, 20, "True", "use true"),
        ("event.data.name == “Ada”", 1, 20, "“", "straight quotes"),
    ],
)
def test_a_refused_expression_names_line_column_and_text(
    text: str, line: int, column: int, marked: str, reason: str
) -> None:
    fault = fault_in(text)
    assert (fault.line, fault.column, fault.marked) == (line, column, marked)
    assert reason in str(fault) and f"line {line}, column {column}" in str(fault)


@pytest.mark.parametrize(
    "text",
    [
        'event.data["is"] == 1 && event.data.or.and == 2',
        'event.data.items.exists(event, event.price > 3)',
        'timestamp(event.data.at).getHours("Europe/Vienna") < 9',
    ],
)  # fmt: skip
def test_names_and_functions_that_exist_are_no_fault(text: str) -> None:
    check_expression(text)


def test_the_known_functions_are_those_of_the_library() -> None:
    values = {
        "text": "2s",
        "at": "2026-01-01T00:00:00Z",
        "number": 1,
        "list": [True],
    }
    context = context_of({"data": values, "time": datetime(2026, 1, 1, tzinfo=UTC)})
    forms = ("{1}.{0}()", '{1}.{0}("2")', "{0}({1})", "{1}.{0}(x, x)")
    receivers = ["event.time", *(f"event.data.{name}" for name in values)]

    def works(call: str) -> bool:
        try:
            value(compile_expression(call), context)
        except ExpressionError:
            return False
        return True

    def is_known(name: str) -> bool:
        return any(works(form.format(name, one)) for form in forms for one in receivers)

    assert {name for name in FUNCTIONS if not is_known(name)} == set()
    assert not is_known("lower")


def test_a_filter_is_taken_apart_at_its_own_operators() -> None:
    text = '(event.type == "a" && (event.data.n > 3 || !(event.data.x == 1 && true)) && event.data["a b"].c.exists(x, x > 1 && true))'

    def drawn(clause: Clause) -> object:
        return [clause.kind, *map(drawn, clause.parts)] if clause.parts else (clause.text, *clause.reads)

    assert drawn(clauses_of(text)) == [
        "all",
        ('event.type == "a"', "event.type"),
        ["any", ("event.data.n > 3", "event.data.n"), ("!(event.data.x == 1 && true)", "event.data.x")],
        ('event.data["a b"].c.exists(x, x > 1 && true)', 'event.data["a b"].c'),
    ]
    assert clauses_of("a ? b && c : d").kind == "clause"


@given(FILTERS)
def test_the_clauses_of_any_filter_are_expressions(text: str) -> None:
    for clause in clauses_of(text).leaves:
        compile_expression(clause.text)
