"""Commands about single requests."""
