"""One spelling for equal JSON values: what is hashed and signed."""

from __future__ import annotations

import json
from typing import Any


def canonical_json(value: Any) -> bytes:
    """Sorted names, no spaces, ASCII.

    >>> canonical_json({"b": 1.0, "a": [True, None]})
    b'{"a":[true,null],"b":1.0}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")
