"""The reports of a policy as lines of text, one each."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agents.kernel.report import Report


def as_lines(reports: Sequence[Mapping[str, Any]]) -> str:
    return "\n".join(map(_line, reports))


def _line(report: Mapping[str, Any]) -> str:
    """One that this version cannot read, as it is stored."""
    try:
        return Report.load(report).line
    except ValueError:
        return json.dumps(report, ensure_ascii=False)
