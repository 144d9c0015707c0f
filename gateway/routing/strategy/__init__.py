"""Fitted plans and strategies, in the form that serving uses."""
