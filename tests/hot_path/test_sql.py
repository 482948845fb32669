"""The hot SQL as it is executed, leg by leg, in `sql/`: to read, to review in a diff, and to paste into psql.

A statement that changes on purpose: WRITE=1 pytest tests/hot_path, and review the diff.
"""

import os
import re
from pathlib import Path

import pytest
from django.db import connection

from tests.hot_path.legs import LEGS
from tests.hot_path.recorder import psql
from tests.support.durable import Lab

pytestmark = pytest.mark.django_db(transaction=True)

FILES = Path(__file__).parent / "sql"
SET = re.compile(r"^\\set (\w+) '(.*)'$", re.MULTILINE)
VARIABLE = re.compile(r"(?<!:):(\w+)")
EXPLAINED = ("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")


@pytest.mark.parametrize("name", LEGS)
def test_the_sql_of_a_leg_is_that_of_its_file(name: str, lab: Lab) -> None:
    statements = [psql(sent) for sent in LEGS[name](lab).sent]
    written = f"-- {name.replace('_', ' ')}\n\n" + "\n\n".join(statements) + "\n"
    file = FILES / f"{name}.sql"
    if os.environ.get("WRITE"):
        file.write_text(written)

    assert file.read_text() == written


def test_every_file_belongs_to_a_leg() -> None:
    assert {file.stem for file in FILES.iterdir()} == set(LEGS)


@pytest.mark.parametrize("name", LEGS)
def test_the_file_of_a_leg_can_be_pasted_into_psql(name: str, db: None) -> None:
    """Each statement is explained with the examples of its file."""
    for statement in (FILES / f"{name}.sql").read_text().split("\n\n")[1:]:
        examples = {name: unquoted(value) for name, value in SET.findall(statement)}
        text = "\n".join(line for line in statement.splitlines() if not line.startswith(("\\set", "--")))
        text = VARIABLE.sub(lambda found, examples=examples: examples.get(found[1], found[0]), text)  # type: ignore[misc]
        if text.startswith(EXPLAINED):
            with connection.cursor() as cursor:
                cursor.execute(f"EXPLAIN {text}", None)


def unquoted(value: str) -> str:
    return value.replace("''", "'").replace("\\\\", "\\")
