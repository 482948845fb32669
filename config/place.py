"""Where Wakeful stands: in a tree of its own, beside `manage.py`, or as the package `wakeful` in an environment."""

from pathlib import Path

IS_PACKAGE = __name__.startswith("wakeful.")
BASE = Path(__file__).resolve().parent.parent  # has templates and docs
# Processes start here, and the embedded servers keep their data here: a folder of the user's.
FOLDER = Path.cwd() if IS_PACKAGE else BASE
# The words after `python`. A file of the package must not be started by its path: its folder would come first on Python's path.
MANAGE = ["-m", "wakeful"] if IS_PACKAGE else [str(BASE / "manage.py")]
COMMAND = "wakeful" if IS_PACKAGE else "python manage.py"  # the same for people
