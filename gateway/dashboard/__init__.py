"""The web page for team leads: spend, budgets and savings."""
