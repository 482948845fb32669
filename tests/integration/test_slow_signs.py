"""A table that signs of trouble are read from, and that takes long, holds up no dispatch."""

from typing import Any

import psycopg

from tests.support.stack import Stack, eventually
from tests.support.triggers import make_event, make_trigger

SLOW = """
ALTER TABLE triggers_poisonmessage RENAME TO elsewhere;
CREATE VIEW triggers_poisonmessage AS
SELECT elsewhere.* FROM (SELECT pg_sleep(600) OFFSET 0) slow LEFT JOIN elsewhere ON true OFFSET 0;
"""
LOOKS = """
SELECT pid, query_start FROM pg_stat_activity
WHERE datname = current_database() AND state = 'active' AND wait_event = 'PgSleep'
"""


def test_dispatch_goes_on_while_the_signs_of_trouble_are_read(stack: Stack) -> None:
    with psycopg.connect(stack.database_url, autocommit=True) as session:
        session.execute(SLOW)
    dispatcher = stack.start("dispatcher", env={"WAKEFUL_SAFETY_LOOK": "1s"})

    def looks() -> list[dict[str, Any]]:
        return stack.query(LOOKS)

    [look] = eventually(looks, 60)
    with stack.orm():
        make_trigger()
        make_event()
    eventually(lambda: stack.query("SELECT 1 FROM runs_run"))

    assert looks() == [look]  # still the same one
    assert dispatcher.stop() == 0
