"""Fitted plans and strategies, as serving uses them."""
