"""
A screenshot as a small PNG: at most 256 colours, which a page without photographs hardly exceeds.

A picture in the repository is kept forever, and a browser's own PNG is three times as large.
"""

import struct
import zlib
from collections import Counter
from collections.abc import Iterator
from typing import Final

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_COLOURS: Final = 256


def small(png: bytes) -> bytes:
    """Return a PNG of 8-bit RGB or RGBA with a palette; rare colours become their nearest neighbour."""
    chunks = dict(_chunks(png))
    width, height, depth, kind = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    size = {2: 3, 6: 4}[kind]
    if depth != 8:
        raise ValueError(f"{depth} bits a channel are not supported")
    pixels = [
        bytes(row[at : at + 3])
        for row in _rows(zlib.decompress(chunks[b"IDAT"]), width * size, size)
        for at in range(0, width * size, size)
    ]
    counts = Counter(pixels)
    palette = [colour for colour, _ in counts.most_common(_COLOURS)]
    places = {colour: _nearest(colour, palette) for colour in counts}
    indexes = bytes(places[pixel] for pixel in pixels)
    lines = b"".join(b"\0" + indexes[at : at + width] for at in range(0, width * height, width))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", header), (b"PLTE", b"".join(palette)), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, data) for name, data in parts)


def _nearest(colour: bytes, palette: list[bytes]) -> int:
    return min(range(len(palette)), key=lambda at: sum((a - b) ** 2 for a, b in zip(colour, palette[at], strict=True)))


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield the chunks by name; the parts of the data are joined."""
    at, data = len(_SIGNATURE), b""
    while at < len(png):
        length, name = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + length]
        data += body if name == b"IDAT" else b""
        yield name, data if name == b"IDAT" else body
        at += length + 12


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _rows(data: bytes, length: int, size: int) -> Iterator[bytearray]:
    """Yield the rows without their filters (PNG, section 9)."""
    above = bytearray(length)
    for start in range(0, len(data), length + 1):
        kind, row = data[start], bytearray(data[start + 1 : start + 1 + length])
        for at in range(length):
            left = row[at - size] if at >= size else 0
            corner = above[at - size] if at >= size else 0
            row[at] = (row[at] + _predicted(kind, left, above[at], corner)) & 0xFF
        yield row
        above = row


def _predicted(kind: int, left: int, above: int, corner: int) -> int:
    match kind:
        case 0:
            return 0
        case 1:
            return left
        case 2:
            return above
        case 3:
            return (left + above) // 2
        case _:
            distances = (abs(above - corner), abs(left - corner), abs(left + above - 2 * corner))
            return (left, above, corner)[distances.index(min(distances))]
