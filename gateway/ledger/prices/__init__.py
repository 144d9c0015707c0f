"""Prices of tokens: the packaged list, the operator's prices, discounts, and repricing of rows without a price."""
