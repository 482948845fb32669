#!/usr/bin/env python
import os
import sys

from runs.processes import probe

if __name__ == "__main__":
    if sys.argv[1:2] == ["alive"]:  # a probe, which runs every few seconds: it does without Django
        sys.exit(probe.main(sys.argv[2:]))
    from django.core.management import execute_from_command_line

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if sys.argv[1:2] == ["init"]:  # where a project's own settings are set, which do not know it
        os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    execute_from_command_line(sys.argv)
