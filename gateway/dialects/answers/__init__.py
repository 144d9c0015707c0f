"""Reads plain answers, errors and usage as backends write them."""
