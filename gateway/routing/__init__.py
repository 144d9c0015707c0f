"""How hard is a request, and which backend is the cheapest that is good enough for it."""
