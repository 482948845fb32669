"""Is the extra installed?"""

from importlib.util import find_spec

from agents.exceptions import Permanent


def require_langgraph() -> None:
    """Permanent: LangGraph is not installed."""
    if not all(find_spec(name) for name in ("langchain_core", "langgraph")):
        raise Permanent(
            'graphs need LangGraph, the extra "langgraph": pip install "wakeful[langgraph]" in the environment of all workers'
        )
