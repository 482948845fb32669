"""Write the lock file of an extra: the packages that it needs besides those of requirements.lock, or in another version, with their hashes.

python deploy/extras/lock.py <pip-compile's output> requirements.lock > deploy/extras/<extra>.lock
"""

import re
import sys
from pathlib import Path

BLOCK = re.compile(r"^([a-z0-9][a-z0-9._-]*)==\S+ \\\n(?:    .*\n)+", re.MULTILINE)


def blocks(path: str) -> dict[str, str]:
    return {found[1]: found[0] for found in BLOCK.finditer(Path(path).read_text())}


def pin(block: str) -> str:
    return block.partition("\n")[0]


whole, known = blocks(sys.argv[1]), blocks(sys.argv[2])
sys.stdout.write("# Written by make lock. Installed without dependencies, on top of requirements.lock.\n")
sys.stdout.writelines(block for name, block in whole.items() if pin(block) != pin(known.get(name, "")))
