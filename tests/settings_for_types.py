"""What mypy reads: the settings with the optional app of the demo in them."""

import os

os.environ["WAKEFUL_DEMO"] = "1"

from config.settings import *  # noqa: E402, F403
