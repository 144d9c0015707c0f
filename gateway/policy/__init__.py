"""Who is calling, under which rules."""
