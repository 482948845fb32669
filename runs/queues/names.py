"""The names of queues in URLs, which cannot contain the name of the row for all queues."""

from runs.queues.pause import EVERY

ALL = "all"


def spelled(name: str) -> str:
    return ALL if name == EVERY else name


def meant(spelled: str) -> str:
    return EVERY if spelled == ALL else spelled
