"""Trials of fitted plans: observe, switch, roll back."""
