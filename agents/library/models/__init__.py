from .issue_triage import IssueTriage
from .order import Order

__all__ = ["IssueTriage", "Order"]
