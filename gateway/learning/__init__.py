"""Learning in the background: comparing answers, hearing people, trying plans."""
