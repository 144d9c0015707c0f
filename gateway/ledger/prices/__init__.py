"""Prices of tokens: the packaged price list, the operator's prices, discounts, and later prices for rows without a
price."""
