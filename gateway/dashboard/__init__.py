"""The team lead's page: spend, budgets and savings."""
