"""The HTTP server below the routes: protocol, timeouts, bodies, compression, CORS, shutdown."""
