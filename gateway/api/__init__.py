"""HTTP: routes, replies, server-sent events."""
