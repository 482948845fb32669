"""Leads what Wakeful asks of Gmail and GitHub to the server that HOUSEHOLD names, which a test starts."""

import os

from agents import mail_accounts
from agents.library import ci_watcher
from triggers.sources.polling import gmail

SERVER = os.environ["HOUSEHOLD"]
mail_accounts.GMAIL = gmail.API = f"{SERVER}/gmail"
ci_watcher.API = f"{SERVER}/github"
