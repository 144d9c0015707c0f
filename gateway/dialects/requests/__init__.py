"""What a request says whatever its dialect: sizes, limits, asides, surcharges, where it may be sent."""
