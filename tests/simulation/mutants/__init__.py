"""
Mutants: the package with one thing taken away, so that it is known that the simulation would miss it.

One module a family; `registry` has all of them, and `caught.json` the seed that catches each, as
`python -m tests.simulation --find-mutants` found it. Refuses to change a file: a mutant is a change of the source text
while it is imported.
"""
