"""Fitted plans on trial, live and rolled back."""
