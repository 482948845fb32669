"""A report as a line of text, and as JSON."""

import pytest

from agents import Report


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (Report(on="failure", notify="ops"), "failure: notify ops"),
        (Report(notify=True, event=True), "end: notify; event"),
        (Report(on="success", webhooks=["crm", "erp"]), "success: webhook crm, erp"),
        (Report(notify=["Smith, J.", 'a "b"', "c;d"]), 'end: notify "Smith, J.", "a \\"b\\"", "c;d"'),
    ],
)
def test_a_report_is_a_line_of_text_and_the_line_is_the_report(given: Report, line: str) -> None:
    assert given.line == line
    assert Report.of_line(line) == given
    assert Report.load(given.dump()) == given


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("failure notify ops", "has no colon"),
        ("sometimes: event", "on is 'sometimes'"),
        ("end:", "goes nowhere"),
        ("end: pager ops", "is no destination"),
        ('end: notify "a', "quote that is not closed"),
        ('end: notify "', "quote that is not closed"),
        ('end: notify ""', "a name is missing"),
        ('end: notify "\\x"', "no name in quotes"),
        ('end: notify "' + '\\"' * 10_000, "at most 10,000 characters"),
        ("end: notify ops; notify night", "notify stands twice"),
        ("end: webhook a; event; webhook b", "webhook stands twice"),
        ("end: webhook; event", "a name is missing"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(line: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Report.of_line(line)
