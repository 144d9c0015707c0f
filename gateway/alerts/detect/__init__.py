"""Detection of alerts that are due."""
