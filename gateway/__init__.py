"""Thriftgate: an LLM gateway that buys every answer at the lowest adequate price."""

__version__ = "0.1.0"
