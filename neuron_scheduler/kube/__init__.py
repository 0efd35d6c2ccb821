"""
The only package that talks to the API server.

Objects come in through `watch` and are passed on as values of `model`; `writes` sends what was decided. Does not depend
on what the values are used for: it imports neither `cluster` nor `scheduling`.
"""
