"""Several backends for one answer: asked in order until an answer is good enough."""
