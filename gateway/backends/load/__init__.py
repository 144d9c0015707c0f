"""How busy the servers behind backends are."""
