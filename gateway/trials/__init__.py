"""Learning on the side: what answers are worth, measured by comparing them, by what people say, and plans on trial."""
