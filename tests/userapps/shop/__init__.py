"""A user's own Django app, as it stands outside the project: WAKEFUL_APPS=shop, its parent folder on PYTHONPATH."""
