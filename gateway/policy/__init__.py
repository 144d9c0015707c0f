"""Policies and keys: identify the caller and the rules that apply."""
