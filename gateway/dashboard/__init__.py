"""The page for a team lead: what was spent, against which budget, and what was saved."""
