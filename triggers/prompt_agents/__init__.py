"""Create, edit and try prompt agents: the services for console, API, command and import. `wakes` defines when one
wakes, `edit` writes its versions with its triggers, checklist and budgets, `trial` tries it, `as_json` is its form in
files and in the API.
"""
