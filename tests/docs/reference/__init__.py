"""The generated parts of docs/reference: what the code says of settings, commands, errors and metrics.

A page holds blocks `<!-- generated: NAME ARGUMENT … -->` … `<!-- end -->`. `python -m tests.docs.reference --write`
writes these blocks; a test compares them with the code. Keys, types and defaults in a table come from the code. The
last column is written by hand in the page and kept; in a new row it starts as the code's own description.
"""
