"""
The hash of a pod template, in names and labels: which version of its owner a pod is of.
"""

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"


def template_hash(template: Mapping[str, Any]) -> str:
    """Return ten characters of the alphabet that generated names use."""
    text = json.dumps(template, sort_keys=True).encode()
    return "".join(_ALPHABET[int(digit)] for digit in f"{zlib.crc32(text):010d}")
