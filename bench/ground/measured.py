"""Processes that are measured in turns."""

import json
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import psutil

from bench.ground.names import READY
from tests.support.stack import ROOT


class Measured:
    """A process that runs one request at a time and answers how long it took; stopped between requests."""

    def __init__(self, module: str, env: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            env=dict(env),
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        if self.process.stdout.readline() != f"{READY}\n":
            raise RuntimeError(f"{module} ended with {self.process.wait()}")
        self.sleep()

    def ask(self, *command: Any) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        psutil.Process(self.process.pid).resume()
        self.process.stdin.write(f"{json.dumps(command)}\n")
        self.process.stdin.flush()
        said = self.process.stdout.readline()
        if not said:
            raise RuntimeError(f"{command} ended with {self.process.wait()}")
        self.sleep()
        return json.loads(said)

    def sleep(self) -> None:
        psutil.Process(self.process.pid).suspend()
