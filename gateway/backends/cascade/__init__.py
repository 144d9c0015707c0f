"""Calls several backends for one answer, in order, until an answer is good enough."""
