"""How queues are called in addresses: the row that stands for all of them has a name no address can have."""

from runs.queues.pause import EVERY

ALL = "all"


def spelled(name: str) -> str:
    return ALL if name == EVERY else name


def meant(spelled: str) -> str:
    return EVERY if spelled == ALL else spelled
