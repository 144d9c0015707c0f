"""What requests of all dialects share: validation, limits, counts, and where they may be sent."""
