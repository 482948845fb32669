import json
from collections import Counter

from tests.support.grounds.ground import Ground
from tests.support.stack import Stack, eventually
from triggers.sources.edit import create_source

ROUNDS, COUNT = 2, 20
# The things that did not come within 15 s, whatever the machine did meanwhile.
LATE = """
SELECT begun.data->>'key' AS key FROM triggers_event begun LEFT JOIN triggers_event seen
  ON seen.type = 'thing.seen' AND seen.data->>'key' = begun.data->>'key' AND seen.received_at <= begun.received_at + interval '15s'
WHERE begun.type = 'thing.begun' AND seen.id IS NULL
"""


class Absences(Ground):
    """Things begin; half of them come in time, the others after they were missed."""

    agent = "absences"

    def prepare(self, stack: Stack) -> None:
        with stack.orm():
            create_source("things", kind="none", settings={"unverified": True, "type_path": "type"}, by="test")

    def move(self, stack: Stack) -> None:
        for number in range(ROUNDS):
            keys = [f"{number}-{thing}" for thing in range(COUNT)]
            for place, key in enumerate(keys):
                self._send(stack, "thing.begun", key)
                if place % 2 == 0:
                    self._send(stack, "thing.seen", key)
            eventually(lambda: {key for key, word in self._recorded(stack)}.issuperset(keys[1::2]))  # noqa: B023  (called at once)
            for key in keys[1::2]:
                self._send(stack, "thing.seen", key)

    def is_complete(self, stack: Stack) -> bool:
        return len(self._recorded(stack)) >= 2 * len(stack.query(LATE))

    def check(self, stack: Stack) -> None:
        late = [row["key"] for row in stack.query(LATE)]
        assert len(late) >= ROUNDS * COUNT // 2
        expected = Counter((key, f"absence.{word}") for key in late for word in ("opened", "closed"))
        assert Counter(self._recorded(stack)) == expected
        assert Counter((one["key"], one["type"]) for one in self.results(stack)) == expected

    def _recorded(self, stack: Stack) -> list[tuple[str, str]]:
        events = stack.query("SELECT subject, type FROM triggers_event WHERE type LIKE 'absence.%%'")
        return [(row["subject"], row["type"]) for row in events]

    def _send(self, stack: Stack, type: str, key: str) -> None:
        body = json.dumps({"type": type, "key": key}).encode()
        assert stack.request("POST", "/hooks/things/", body=body).status == 202
