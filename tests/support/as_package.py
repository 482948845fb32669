"""The tests of this tree, over the installed package: with the wheel in place of the tree's rooms, and the names that modules have there.

    python -m tests.support.as_package tests/agents/openai

What runs beside packages that have the names of the rooms, as the SDK of openai-agents has, can be tested in no other way.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

from deploy.wheel import namespaced
from tests.support.servers import reachable_folder
from tests.support.stack import ROOT
from tests.support.wheel import build

MANAGE = "from wakeful.__main__ import main\n\nmain()\n"
OF_THE_TREE = ("PYTHONPATH", "DJANGO_SETTINGS_MODULE")
BESIDE = ("pyproject.toml", "README.md", "Makefile")
# The SDK closes no client; what is left is found at the end of the session, where no mark of a test counts.
UNCLOSED = ("-W", "ignore::ResourceWarning")


def copy(folder: Path) -> None:
    """The wheel, and the tests with the names of its modules."""
    with ZipFile(build(folder / "wheel")) as wheel:
        wheel.extractall(folder)
    for room in ("tests", "deploy"):
        for file in (file for file in (ROOT / room).rglob("*") if file.is_file() and "__pycache__" not in file.parts):
            new = folder / file.relative_to(ROOT)
            new.parent.mkdir(parents=True, exist_ok=True)
            if room == "tests" and file.suffix == ".py":
                new.write_text(namespaced(file.read_text()))
            else:
                shutil.copyfile(file, new)
    for name in BESIDE:
        shutil.copyfile(ROOT / name, folder / name)
    (folder / "manage.py").write_text(MANAGE)


def main(arguments: list[str]) -> int:
    with reachable_folder() as folder:
        copy(Path(folder))
        environment = {name: value for name, value in os.environ.items() if name not in OF_THE_TREE}
        command = [sys.executable, "-m", "pytest", *UNCLOSED, *arguments]
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
