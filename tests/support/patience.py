"""
How long a test waits for what must happen.

The limit only ends a test that fails: a machine that stalls for some seconds must not fail one. No test measures a time
with it, and none waits until it is over.
"""

from typing import Final

# Seconds; less than pytest's limit for a test, so that the error says what did not happen.
PATIENCE: Final = 60.0
