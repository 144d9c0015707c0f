"""What fits a backend's window and a team's limit, and what is left out when it does not."""
