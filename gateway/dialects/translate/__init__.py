"""From one dialect to another: requests forth, answers and streams back."""
