"""Properties of texts that packages share: what to hide, what is visible, how long it may be."""
