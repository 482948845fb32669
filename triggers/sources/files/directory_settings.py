"""The settings of a watched directory."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from agents.kernel.durations import parse_duration
from triggers.sources.files.selection import Selection, patterns_in
from triggers.sources.polling.poller import ALL, NEW
from triggers.sources.settings import InvalidSettings, setting, whole_number

UNFINISHED = ".*, *~, *.part, *.partial, *.filepart, *.crdownload, *.tmp, *.swp"
MEGABYTE = 2**20


def directory(value: str) -> str:
    path = os.fsencode(value)
    if not os.path.isabs(path) or os.path.normpath(path) != path or not value.isprintable():
        return "must be an absolute path, such as /data/in"
    return ""


def patterns(value: str) -> str:
    return "" if patterns_in(value) else "must be one or more patterns, such as *.csv"


def ending(value: str) -> str:
    return "" if value.isprintable() and "/" not in value else "must be the end of a name, such as .done"


def file_name(value: str) -> str:
    return "" if value.isprintable() and "/" not in value and value not in (".", "..") else "must be the name of a file"


def span(shortest: timedelta, longest: timedelta, bounds: str) -> Callable[[str], str]:
    def check(value: str) -> str:
        try:
            return "" if shortest <= parse_duration(value) <= longest else f"must be from {bounds}"
        except ValueError as error:
            return f"is wrong: {error}"

    return check


@dataclass(frozen=True, kw_only=True)
class DirectorySettings:
    """Which files, and when they are complete."""

    directory: str = setting("", "Directory", "An absolute path below one of WAKEFUL_FILE_ROOTS.", check=directory)
    patterns: str = setting(
        "*",
        "Files",
        "Patterns, separated by commas, such as *.csv. One with a slash, such as 2026/*.csv, is compared with the path below the "
        "directory.",
        check=patterns,
    )
    ignored: str = setting(
        UNFINISHED,
        "Ignored",
        "Patterns of names of files and folders that do not count, such as those that writers use until a file is complete.",
    )
    is_deep: bool = setting(True, "Folders below it too")
    settle: str = setting(
        "5s",
        "Complete after",
        "A file counts when its size and time have not changed for so long. 0s, if writers rename complete files into place.",
        check=span(timedelta(), timedelta(days=1), "0s to 1d"),
    )
    marker: str = setting(
        "",
        "Marker of complete files",
        "Such as .done: orders.csv counts when orders.csv.done is there and is not older. Empty: none.",
        check=ending,
    )
    every: str = setting(
        "30s",
        "Scan every",
        "Time between two scans, from 1s to 1d; a scan that takes long makes it longer.",
        check=span(timedelta(seconds=1), timedelta(days=1), "1s to 1d"),
    )
    begin_with: str = setting(
        NEW,
        "Begin with",
        "“new”: files that are there before the source make no event; “all”: they do.",
        choices=(NEW, ALL),
    )
    hash_up_to: int = setting(
        64,
        "Read content up to (MB)",
        "The fingerprint of a larger file is made of its size and time.",
        check=whole_number(0, 4096),
    )
    once_per_content: bool = setting(
        False, "One event for the same content", "A file with a content that has had an event is a duplicate of that."
    )
    has_hints: bool = setting(
        True,
        "Use hints of the operating system",
        "Changes on this host are seen at once (inotify), in the first 5,000 folders. Others are seen by scans.",
    )
    sentinel: str = setting(
        "",
        "File that must be there",
        "Directly in the directory. While it is missing, the directory counts as away, such as not mounted. Empty: none.",
        check=file_name,
    )
    may_be_replaced: bool = setting(
        False,
        "The directory may be made again",
        "Else another directory at its path without any known file is an error, and its files have not vanished.",
    )

    def __post_init__(self) -> None:
        if not self.directory:
            raise InvalidSettings({"directory": "must be an absolute path, such as /data/in"})

    @property
    def selection(self) -> Selection:
        return Selection(self.patterns, self.ignored, self.marker, self.is_deep)

    @property
    def settle_seconds(self) -> float:
        return parse_duration(self.settle).total_seconds()

    @property
    def every_seconds(self) -> float:
        return parse_duration(self.every).total_seconds()

    @property
    def most_hashed(self) -> int:
        return self.hash_up_to * MEGABYTE
