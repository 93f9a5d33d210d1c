"""The exception tree is what its docstring says."""

from __future__ import annotations

import re

from homing import errors


def _classes(root: type[errors.HomingError]) -> set[type[errors.HomingError]]:
    return {root}.union(*(_classes(kind) for kind in root.__subclasses__()))


def test_docstring_lists_every_class_and_nothing_else() -> None:
    drawn = set(
        re.findall(r"^ *(?:│? *[├└]── )*│? *(?:[├└]── )?([A-Z]\w+)  ", errors.__doc__ or "", re.M)
    )
    assert drawn == {kind.__name__ for kind in _classes(errors.HomingError)}


def test_nak_reasons_become_typed_exceptions() -> None:
    error = errors.Refused.from_reason("queue-full echo holds 1000 requests")
    assert type(error) is errors.QueueFull
    assert str(error) == "echo holds 1000 requests"
    assert error.retryable
    assert errors.Refused.from_reason("timeout").code == "timeout"
    assert isinstance(errors.Refused.from_reason("timeout"), TimeoutError)
    assert type(errors.Refused.from_reason("something else")) is errors.Refused


def test_filter_error_points_at_the_column() -> None:
    assert (
        str(errors.FilterError("expected a value", "a = ", 5)).splitlines()[-1]
        == "      ^ column 5"
    )
