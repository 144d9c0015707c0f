"""The operator's settings: gateway.yaml, environment, paths."""
