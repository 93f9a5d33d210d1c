"""Z85 (RFC 32): keys as text that people can copy, 5 characters for 4 bytes."""

from __future__ import annotations

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUE = {char: value for value, char in enumerate(_Z85)}


def z85(data: bytes) -> str:
    """Bytes (a multiple of 4) as the text that people and key files use (RFC 32)."""
    if len(data) % 4:
        raise ValueError("Z85 takes a multiple of 4 bytes")
    text: list[str] = []
    for at in range(0, len(data), 4):
        value = int.from_bytes(data[at : at + 4], "big")
        text += [_Z85[value // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(text)


def from_z85(text: str) -> bytes:
    """Z85 text as bytes."""
    if len(text) % 5 or not set(text) <= _Z85_VALUE.keys():
        raise ValueError("not Z85: 5 characters for 4 bytes, from its alphabet of 85")
    out = bytearray()
    for at in range(0, len(text), 5):
        value = 0
        for char in text[at : at + 5]:
            value = value * 85 + _Z85_VALUE[char]
        if value > 0xFFFFFFFF:
            raise ValueError("not Z85: a group is over 32 bits")
        out += value.to_bytes(4, "big")
    return bytes(out)
