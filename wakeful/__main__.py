"""The command `wakeful`, or `python -m wakeful`: what `manage.py` is in a tree."""

import os
import sys

from runs.processes import probe


def main() -> None:
    """With the apps of the folder it is called in, as `manage.py` has those beside it."""
    if sys.argv[1:2] == ["alive"]:  # a probe, which runs every few seconds: it does without Django
        sys.exit(probe.main(sys.argv[2:]))
    from django.core.management import execute_from_command_line

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if sys.argv[1:2] == ["init"]:  # where a project's own settings are set, which do not know it
        os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
