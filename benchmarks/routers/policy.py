"""Routes that cost something: what an application's own policy might."""

from __future__ import annotations

import hashlib
import json
from typing import Any


def cheap(user: str, service: bytes, data: bytes) -> bytes:
    """Next to nothing: a lookup."""
    return service


def validate(user: str, service: bytes, data: bytes) -> bytes:
    """About 50 µs: a document is made and parsed, as validation of a JSON body would."""
    _document(10)
    return service


def heavy(user: str, service: bytes, data: bytes) -> bytes:
    """About 500 µs: a signature's worth of hashing and a large document."""
    _document(50)
    hashlib.pbkdf2_hmac("sha256", data, b"salt", 300)
    return service


def _document(fields: int) -> Any:
    text = json.dumps({f"field {n}": [n, str(n), {"nested": n}] for n in range(fields)})
    return json.loads(text)
