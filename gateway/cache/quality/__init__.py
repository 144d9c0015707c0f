"""How many hits are wrong: checks of served hits, and the threshold that follows from them."""
