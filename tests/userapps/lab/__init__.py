"""The agents of the chaos suite, as a user's own app: WAKEFUL_APPS=lab, its parent folder on PYTHONPATH."""
