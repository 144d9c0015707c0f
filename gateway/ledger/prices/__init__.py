"""What tokens cost: the packaged list, providers, discounts, and rows that lack a price."""
