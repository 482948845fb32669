"""Run an agent in a test of your project: see `agents.testing`."""

from agents.testing import *  # noqa: F403
