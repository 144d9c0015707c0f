"""Writes notes about the old turns of sessions in their pauses."""
