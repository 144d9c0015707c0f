"""Fitted plans and strategies, in the form in which serving uses them."""
