"""`thriftgate simulate`: computes what the calls in other software's log would have cost in this gateway."""
