"""Context: token counts, and trimming of what does not fit a backend's window or a team's limit."""
