"""The files below deploy/, checked with the tools that would use them."""
