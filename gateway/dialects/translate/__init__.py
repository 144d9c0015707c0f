"""Translators between dialects: requests forth, answers and streams back."""
