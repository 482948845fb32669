"""Durable agents that deal with a real receiver over HTTP: WAKEFUL_APPS=courier, its parent folder on PYTHONPATH, and the
receiver (tests/support/receiver.py) in COURIER_BASE_URL, as host:port."""
