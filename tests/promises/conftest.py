from tests.runs.conftest import claim_for, worker

__all__ = ["claim_for", "worker"]
