"""The operator's settings: gateway.yaml, environment variables, paths."""
