"""When an alert is due."""
