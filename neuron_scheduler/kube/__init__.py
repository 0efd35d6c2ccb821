"""
The conversation with the API server: the only package that knows that there is one.

Bytes come in through `informer` and leave as values of `model`; a decision leaves as one Binding. Refuses to know what
the values are used for: it imports neither `cluster` nor `scheduling`.
"""
