"""Plain answers, errors and usage as backends write them."""
