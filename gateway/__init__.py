"""Thriftgate: an LLM gateway that gets every answer at the lowest price at which its quality is adequate."""

__version__ = "0.1.0"
