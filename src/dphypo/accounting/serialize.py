"""Events as JSON and back: only the classes named here, so that a certificate cannot make us import anything else."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import attr
import dp_accounting
from dp_accounting import dp_event

from dphypo.accounting.events import ApproximateDp, PureDp, RdpCurve
from dphypo.accounting.one_run import Event

_OURS: dict[str, type] = {"PureDp": PureDp, "ApproximateDp": ApproximateDp, "RdpCurve": RdpCurve}


def event_to_dict(event: Event) -> dict[str, Any]:
    """An event as a JSON object whose "type" is its class.

    >>> event_to_dict(dp_accounting.GaussianDpEvent(2.0))
    {'type': 'GaussianDpEvent', 'noise_multiplier': 2.0}
    """
    name = type(event).__name__
    if name in _OURS and isinstance(event, _OURS[name]):
        fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(_OURS[name])}
    elif isinstance(event, dp_accounting.DpEvent) and getattr(dp_event, name, None) is type(event):
        fields = {field.name: getattr(event, field.name) for field in attr.fields(type(event))}
    else:
        raise TypeError(f"event = {event!r} cannot be written into a certificate: it is not an event of dp_accounting")
    return {"type": name, **{key: _to_json(value) for key, value in fields.items()}}


def event_from_dict(data: Mapping[str, Any]) -> Event:
    """The event that :func:`event_to_dict` wrote."""
    fields = {key: _from_json(value) for key, value in data.items() if key != "type"}
    name = data.get("type")
    kind = _OURS.get(str(name)) or getattr(dp_event, str(name), None)
    if not isinstance(kind, type) or not (kind in _OURS.values() or issubclass(kind, dp_accounting.DpEvent)):
        raise ValueError(f"type = {name!r} is not an event that a certificate can hold")
    event: Event = kind(**fields)
    return event


def _to_json(value: Any) -> Any:
    if isinstance(value, (dp_accounting.DpEvent, PureDp, ApproximateDp, RdpCurve)):
        return event_to_dict(value)
    if isinstance(value, (list, tuple)):
        return [_to_json(item) for item in value]
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str):
        return value
    number = float(value)
    return number if math.isfinite(number) else str(number)  # JSON has no infinity


def _from_json(value: Any) -> Any:
    if isinstance(value, Mapping):
        return event_from_dict(value)
    if isinstance(value, list):
        return [_from_json(item) for item in value]
    return math.inf if value == "inf" else value
