"""HTTP to the API server: connections, authentication, TLS, and what an answer means."""
