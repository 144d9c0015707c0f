"""Trials of fitted plans: observe a plan, begin to use it, return to the previous plan."""
