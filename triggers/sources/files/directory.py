import os
from collections.abc import Mapping
from typing import NoReturn

from agents.files import is_beneath, roots
from triggers.sources.continuity import Gaps
from triggers.sources.files.directory_reader import DirectoryReader
from triggers.sources.files.directory_settings import DirectorySettings
from triggers.sources.kind import Group, register
from triggers.sources.runner import Assignment, Reader, Runner
from triggers.sources.settings import InvalidSettings


@register
class Directory(Runner[DirectorySettings]):
    name = "directory"
    label = "Directory of files"
    help_text = (
        "Files that a look finds created, changed, renamed or removed in a directory and below it. Between two looks it cannot see a "
        "file that comes and goes, or is changed and changed back; several changes of a file are one event."
    )
    group = Group.FILES
    docs = "files"
    settings_class = DirectorySettings
    in_sight = ("directory", "patterns", "settle")
    needs_secret = False
    gaps = Gaps(
        are_seen=False,
        how="a file that is made and removed again between two looks leaves no trace.",
    )
    setup = (
        "Set WAKEFUL_FILE_ROOTS to the directories that may be watched, for the web, sources and worker processes.",
        "Mount the directory at the same path on every host that runs sources or worker processes, and let their user read it.",
        "Say when a file is complete: after a time without a change, when it is renamed, or when its marker is there.",
    )

    def check(self, settings: Mapping[str, object]) -> None:
        path = os.fsencode(self.clean_settings(settings).directory)
        if not any(is_beneath(path, root) for root in roots()):
            raise InvalidSettings({"directory": "must be one of WAKEFUL_FILE_ROOTS or below it"})

    def clean_secret(self, secret: str) -> NoReturn:
        raise InvalidSettings({"secret": "is not used by this kind: leave it empty"})

    def new_secret(self) -> str:
        return ""

    def connect(self, assignment: Assignment[DirectorySettings]) -> Reader:
        return DirectoryReader(assignment)
