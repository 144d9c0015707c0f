"""What the operator decides: gateway.yaml, the environment, and where things lie on disk."""
