"""Routing: estimates how hard a request is and chooses the cheapest backend that is good enough."""
