"""Routing: how hard a request is, and the cheapest backend that is good enough."""
