"""Time zones by name, from the machine's database. `app` loads this only for a zone other than UTC."""

from __future__ import annotations

from datetime import UTC as UTC_TIME
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from holdfast.protocol.zone import UTC, Zone


def is_zone(name: str) -> bool:
    """Return whether this machine knows the zone."""
    return _zone(name) is not None


def zone_at(name: str, now_ms: int) -> Zone:
    """Return the zone at a time. What this machine does not know, of a session that came from another one, is UTC."""
    zone = _zone(name)
    if zone is None:
        return UTC
    local = datetime.fromtimestamp(now_ms // 1000, UTC_TIME).astimezone(zone)
    ahead = local.utcoffset() or timedelta()
    return Zone(local.tzname() or name, round(ahead.total_seconds()))


def _zone(name: str) -> ZoneInfo | None:
    try:
        return ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return None
