"""Opt-in strategies that send less of a request than the client wrote."""
