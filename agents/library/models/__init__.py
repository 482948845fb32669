from .invoice import Invoice
from .issue_triage import IssueTriage
from .order import Order

__all__ = ["Invoice", "IssueTriage", "Order"]
