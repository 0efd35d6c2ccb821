"""API objects as frozen values in Kubernetes' words, and their arithmetic. No I/O, no clock, no policy."""
