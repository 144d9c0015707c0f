"""Prices of tokens: the packaged price list, the operator's own prices, discounts, and prices that are added later to
rows without a price."""
