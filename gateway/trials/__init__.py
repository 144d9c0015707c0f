"""Learning on the side: what people say of answers, and the few requests that the reference serves to compare with."""
