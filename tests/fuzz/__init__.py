"""Valid requests, answers and files, changed at random: in CI with hypothesis, for long by `python -m tests.fuzz`."""
