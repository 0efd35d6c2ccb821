"""What there is: frozen values in Kubernetes' words, and their arithmetic. No I/O, no clock, no opinion."""
