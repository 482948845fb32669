#!/usr/bin/env python
import os
import sys

from django.core.management import execute_from_command_line

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if sys.argv[1:2] == ["init"]:  # where a project's own settings are set, which do not know it
        os.environ["DJANGO_SETTINGS_MODULE"] = "config.settings"
    execute_from_command_line(sys.argv)
