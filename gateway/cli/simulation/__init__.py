"""`thriftgate simulate`: prices a log of other software under this gateway's rules."""
