"""Requests, policies and providers' answers that nobody would write. By hand: `python -m tests.fuzz --minutes 60`."""
