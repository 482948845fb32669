"""Make, edit and try prompt agents: what the console, the API, the command and an import call.

`wakes` says when one wakes, `edit` writes its versions with its triggers, checklist and budgets, `trial` tries it, `as_json` is its
form in files and in the API.
"""
