"""The fakes themselves, tested."""
