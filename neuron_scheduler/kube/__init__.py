"""
The only package that talks to the API server: `watch` reads values of `model`, `writes` sends decisions.

It imports neither `cluster` nor `scheduling`.
"""
