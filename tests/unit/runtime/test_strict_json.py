"""Values that are not JSON become null."""

from __future__ import annotations

import json

from otel_memwatch.runtime.strict_json import dumps


def test_infinities_become_null_at_any_depth():
    value = {"a": [1.5, float("inf"), (float("-inf"), "inf")], "b": {"c": float("nan")}, "d": None}
    assert json.loads(dumps(value, indent=2)) == {
        "a": [1.5, None, [None, "inf"]],
        "b": {"c": None},
        "d": None,
    }
