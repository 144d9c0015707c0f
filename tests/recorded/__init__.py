"""Recorded exchanges of a running gateway: what clients and providers see on the wire, byte by byte."""
