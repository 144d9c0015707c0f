"""How hard a prompt is: the packaged classifier."""
