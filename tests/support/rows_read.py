"""What statements read of the table of runs."""

import json
from collections.abc import Callable
from typing import Any

from django.db import connection

MANY_LIKE_IT = """
INSERT INTO runs_run SELECT (jsonb_populate_record(run, jsonb_build_object(
  'id', '01900000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'), 'seq', run.seq + n))).*
FROM runs_run run, generate_series(1, 5000) n WHERE run.id = %s
"""


def runs_read(act: Callable[[], object]) -> int:
    """The rows of the table of runs that the statements of this read, also those that they leave out."""
    given: list[tuple[str, Any]] = []

    def note(send: Any, statement: str, parameters: Any, many: bool, context: Any) -> Any:
        given.append((statement, parameters))
        return send(statement, parameters, many, context)

    with connection.execute_wrapper(note):
        act()
    read = 0
    for statement, parameters in given:
        if "runs_run" in statement and statement.split()[0] in ("SELECT", "WITH"):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}", parameters)
                [(plan,)] = cursor.fetchall()
            steps = [(plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]]
            while steps:
                step = steps.pop()
                steps += step.get("Plans", [])
                if step.get("Relation Name") == "runs_run":
                    read += (step["Actual Rows"] + step.get("Rows Removed by Filter", 0)) * step["Actual Loops"]
    return int(read)
