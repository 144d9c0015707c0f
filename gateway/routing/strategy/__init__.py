"""Fitted plans and strategies as they are served."""
