"""The wheel of this tree, and an environment that has it in place of the tree."""

import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.support.stack import ROOT


def build(folder: Path) -> Path:
    """The wheel, made of a copy of the files that git knows: a build leaves things behind."""
    files = folder / "files"
    tree = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    for name in tree:
        (files / name).parent.mkdir(parents=True, exist_ok=True)
        (files / name).write_bytes((ROOT / name).read_bytes())
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*command, str(files)], check=True, timeout=120)
    return next(folder.glob("*.whl"))


def environment(folder: Path, wheel: Path) -> Path:
    """The `bin` of an environment with the wheel, and with what is installed here for all that it needs."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "here.pth").write_text(sysconfig.get_path("purelib"))
    install = ["install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", str(wheel)]
    subprocess.run([sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), *install], check=True)
    return folder / "bin"
