"""Commands for work on the gateway itself, and the demo."""
