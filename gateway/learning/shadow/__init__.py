"""Backends compared on requests that were served."""
