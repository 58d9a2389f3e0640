"""When a periodic job is due.

Every scheduler must come to the same due times, whenever it started, so a `When` depends on
nothing but the moment it is asked about.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from hypercube_queue import MAX_DURATION, InvalidArgument
from hypercube_queue.checks import safe_repr

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SHORTEST = timedelta(seconds=1)
#: With every minute, hour, day, month and weekday in a list of its own it takes half of this.
_LONGEST = 1_000
_HOURS = set(range(24))
_NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
}


class When(Protocol):
    """Gives due times."""

    def after(self, moment: datetime) -> datetime | None:
        """The first due time after an aware `moment`, in UTC; None if none is left."""
        ...


@dataclass(frozen=True, slots=True)
class Cron:
    """By a cron expression: minute, hour, day of the month, month, day of the week.

        Cron("30 3 * * MON-FRI", timezone="Europe/Berlin")

    Read as Debian's cron does: with both days given, either will do. Where every hour is due,
    time is counted as it passes, whatever clocks do. Where some hours are, as in `2`, `1-4` and
    `*/2`, what falls into the gap when clocks go forward is due right behind it, and an hour
    that comes twice when they go back is due once. `timezone` is UTC if not given.

    `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly` are understood too. Raises
    InvalidArgument for an expression that cannot be read, and for an unknown time zone.
    """

    expression: str
    timezone: str | tzinfo = UTC
    _zone: tzinfo = field(init=False, repr=False, compare=False)
    _fields: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.expression, str):
            kind = type(self.expression).__name__
            raise InvalidArgument(f"a cron expression is a str such as '30 3 * * *', not {kind}")
        object.__setattr__(self, "_zone", _zone(self.timezone))
        if len(self.expression) > _LONGEST:
            raise InvalidArgument(
                f"the cron expression {safe_repr(self.expression)} has {len(self.expression):,} "
                f"characters; it has at most {_LONGEST:,}"
            )
        fields = _NAMED.get(self.expression.lower(), self.expression).upper()
        if len(fields.split()) != 5:
            raise InvalidArgument(
                f"the cron expression {safe_repr(self.expression)} has not five fields: minute, "
                "hour, "
                "day of the month, month, day of the week"
            )
        try:
            every_hour = CronSim(fields, _EPOCH).hours == _HOURS
        except CronSimError as error:
            raise InvalidArgument(
                f"the cron expression {safe_repr(self.expression)} cannot be read: {error}"
            ) from error
        object.__setattr__(self, "_fields", _for_cronsim(fields, every_hour=every_hour))

    def after(self, moment: datetime) -> datetime | None:
        """See `When.after`."""
        start = moment.astimezone(self._zone)
        for due in CronSim(self._fields, start):
            found = due.astimezone(UTC)
            # Asked within the hour that clocks repeat, it begins with what was due before.
            if found > moment:
                return found
        return None

    def __str__(self) -> str:
        return f"{self.expression} ({self._zone})"


@dataclass(frozen=True, slots=True)
class Every:
    """At equal distances, counted from `start`, and never before it.

        Every(timedelta(minutes=5))
        Every(timedelta(days=7), start=datetime(2026, 1, 5, 9, tzinfo=ZoneInfo("Europe/Berlin")))

    Time is counted as it passes, so a distance of a day moves by an hour when clocks change; a
    Cron does not. If not given, `start` is the beginning of 1970 in UTC: the days begin at
    midnight, the hours at their full.

    Raises InvalidArgument for an interval below a second or over ten years, and for a start
    without a time zone.
    """

    interval: timedelta
    start: datetime = field(default=_EPOCH, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.interval, timedelta):
            raise InvalidArgument(f"interval is a timedelta, not {type(self.interval).__name__}")
        if not _SHORTEST <= self.interval <= MAX_DURATION:
            raise InvalidArgument(
                f"interval is {self.interval}; it is from one second to {MAX_DURATION}"
            )
        start: object = self.start
        if not isinstance(start, datetime) or start.utcoffset() is None:
            raise InvalidArgument(f"start is {safe_repr(start)}; it is a datetime with a timezone")

    def after(self, moment: datetime) -> datetime | None:
        """See `When.after`."""
        start = self.start.astimezone(UTC)
        if moment < start:
            return start
        passed = (moment - start) // self.interval
        try:
            return start + self.interval * (passed + 1)
        except OverflowError:
            return None  # the calendar ends in the year 9999

    def __str__(self) -> str:
        return f"every {self.interval}"


def _for_cronsim(fields: str, *, every_hour: bool) -> str:
    """The same fields so that CronSim treats hours that clocks leave out or repeat as we do.

    It goes by the time that passes where the minute or the hour begins with a star, and by the
    clocks otherwise.
    """
    minute, hour, *days = fields.split()
    if every_hour:
        hour = "*"
    else:
        minute, hour = _without_stars(minute, 59), _without_stars(hour, 23)
    return " ".join((minute, hour, *days))


def _without_stars(field: str, last: int) -> str:
    return ",".join(part.replace("*", f"0-{last}", 1) for part in field.split(","))


def _zone(value: object) -> tzinfo:
    if isinstance(value, tzinfo):
        return value
    if not isinstance(value, str):
        raise InvalidArgument(
            f"timezone is a name such as 'Europe/Berlin' or a tzinfo, not {type(value).__name__}"
        )
    try:
        return ZoneInfo(value)
    except (LookupError, ValueError, OSError) as error:
        raise InvalidArgument(
            f"there is no time zone {safe_repr(value)} here; where the system has none at all, "
            "install tzdata"
        ) from error
