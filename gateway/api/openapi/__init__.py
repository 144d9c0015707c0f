"""The OpenAPI document of the routes that a gateway serves."""
