"""What a process in isolation is given, and what ends it."""

import json
import os
import resource
import subprocess
import sys
from typing import Any

import pytest

from runs.processes import isolation

IDLE, ENDLESS, GREEDY = range(3)


def main(conduct: int) -> None:
    """In the process."""
    while conduct == ENDLESS:
        pass
    if conduct == GREEDY:
        bytearray(2 * isolation.MEMORY)
    report = {
        "environment": sorted(os.environ),
        "has_django": "django" in sys.modules,
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "nice": os.nice(0),
    }
    sys.stdout.write(json.dumps(report))


def isolated(conduct: int, **limits: Any) -> subprocess.CompletedProcess[bytes]:
    command = isolation.command_of(__name__, conduct, **limits)
    return subprocess.run(command, env=isolation.environment(), capture_output=True, timeout=60, check=False)


def test_an_isolated_process_gets_no_secret_no_setting_and_a_lower_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "sesame")

    report = json.loads(isolated(IDLE, nice=10).stdout)

    assert set(report["environment"]) <= {*isolation.ENVIRONMENT, "LC_CTYPE"}  # which Python itself sets
    assert not report["has_django"]
    assert (report["core"], report["nice"]) == ([0, 0], min(os.nice(0) + 10, 19))


def test_an_isolated_process_is_ended_at_its_limits() -> None:
    assert isolated(ENDLESS, seconds=1).returncode < 0
    assert b"MemoryError" in isolated(GREEDY).stderr


@pytest.mark.parametrize(
    "module", ["triggers.sources.polling.feed_parser", "triggers.matching.expressions.evaluator_process"]
)
def test_modules_that_run_in_isolation_import_no_django(module: str) -> None:
    code = f"import sys, {module}; sys.exit('django' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], cwd=isolation.BASE, check=False, timeout=60).returncode == 0
