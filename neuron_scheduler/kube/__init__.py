"""
The only package that talks to the API server.

Objects come in through `watch` and are passed on as values of `model`; `writes` sends what was decided. What the values
are used for is unknown here: it imports neither `cluster` nor `scheduling`.
"""
