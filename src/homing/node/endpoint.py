"""Endpoints as every room reads them: homing.endpoint."""

from __future__ import annotations

from homing.endpoint import Endpoint, parse_endpoint

__all__ = ["Endpoint", "parse_endpoint"]
