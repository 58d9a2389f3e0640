"""When periodic jobs are due."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypercube_jobs import Cron, Every, When
from hypercube_queue import InvalidArgument

BERLIN = "Europe/Berlin"


def due(when: When, after: datetime, count: int) -> Iterator[datetime]:
    for _ in range(count):
        following = when.after(after)
        assert following is not None
        yield following
        after = following


def local(when: When, day: datetime, count: int) -> list[str]:
    """The first due times of a day in Berlin, by the clocks there."""
    start = day.replace(tzinfo=ZoneInfo(BERLIN)) - timedelta(microseconds=1)
    return [f"{each.astimezone(ZoneInfo(BERLIN)):%H:%M%z}" for each in due(when, start, count)]


def test_an_expression_is_read_in_its_time_zone() -> None:
    """UTC if none is named; by its name or as a tzinfo; and what comes is in UTC."""
    noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert Cron("30 3 * * *").after(noon) == datetime(2026, 7, 2, 3, 30, tzinfo=UTC)
    assert Cron("30 3 * * *", BERLIN).after(noon) == datetime(2026, 7, 2, 1, 30, tzinfo=UTC)
    zone = ZoneInfo("Asia/Tokyo")
    assert Cron("0 9 * * mon-fri", zone).after(noon) == datetime(2026, 7, 2, 0, tzinfo=UTC)
    found = Cron("30 3 * * *", BERLIN).after(noon)
    assert found is not None
    assert found.tzinfo is UTC


def test_common_times_have_names() -> None:
    """As crontabs have them."""
    start = datetime(2026, 7, 1, 12, tzinfo=UTC)
    assert Cron("@Daily").after(start) == datetime(2026, 7, 2, tzinfo=UTC)
    assert Cron("@hourly").after(start) == datetime(2026, 7, 1, 13, tzinfo=UTC)


SPRING, AUTUMN = datetime(2026, 3, 29), datetime(2026, 10, 25)


def test_what_falls_into_the_gap_of_spring_is_due_behind_it() -> None:
    """Once, and what is due each half hour goes on."""
    assert local(Cron("30 2 * * *", BERLIN), SPRING, 2) == ["03:00+0200", "02:30+0200"]
    assert local(Cron("*/30 * * * *", BERLIN), SPRING, 6)[3:] == [
        "01:30+0100",
        "03:00+0200",
        "03:30+0200",
    ]


def test_the_hour_that_comes_twice_in_autumn_counts_once_for_a_fixed_hour() -> None:
    """And twice for what is due each half hour."""
    midnight_to_noon = local(Cron("30 2,11 * * *", BERLIN), AUTUMN, 2)
    assert midnight_to_noon == ["02:30+0200", "11:30+0100"]
    assert local(Cron("*/30 * * * *", BERLIN), AUTUMN, 8)[4:] == [
        "02:00+0200",
        "02:30+0200",
        "02:00+0100",
        "02:30+0100",
    ]


@pytest.mark.parametrize(
    ("expression", "spring", "autumn"),
    [
        ("0 */2 * * *", ["00:00+0100", "03:00+0200", "04:00+0200"], ["00:00+0200", "02:00+0200"]),
        ("0 0-23/2 * * *", ["00:00+0100", "03:00+0200", "04:00+0200"], ["00:00+0200"]),
        ("*/20 2 * * *", ["03:00+0200", "02:00+0200"], ["02:00+0200", "02:20+0200", "02:40+0200"]),
        ("15 * * * *", ["00:15+0100", "01:15+0100", "03:15+0200"], ["00:15+0200", "01:15+0200"]),
        ("15 0-23 * * *", ["00:15+0100", "01:15+0100", "03:15+0200"], ["00:15+0200"]),
        ("*/30 1-3 * * *", ["01:00+0100", "01:30+0100", "03:00+0200", "03:30+0200"], []),
    ],
)
def test_some_hours_go_by_the_clocks_and_every_hour_by_the_time_that_passes(
    expression: str, spring: list[str], autumn: list[str]
) -> None:
    """However they are written: a star with a step names some hours as well."""
    assert local(Cron(expression, BERLIN), SPRING, len(spring)) == spring
    assert local(Cron(expression, BERLIN), AUTUMN, len(autumn)) == autumn


def test_some_hours_are_due_once_where_clocks_repeat_them() -> None:
    """And every hour is due in each of the two."""
    assert local(Cron("0 */2 * * *", BERLIN), AUTUMN, 3)[1:] == ["02:00+0200", "04:00+0100"]
    assert local(Cron("15 0-23 * * *", BERLIN), AUTUMN, 4)[2:] == ["02:15+0200", "02:15+0100"]


EXPRESSIONS = [
    "0 */2 * * *",
    "*/9 2 * * *",
    "30 2 * * *",
    "*/7 * * * *",
    "0 * * * *",
    "15 2,3 * * *",
    "0 1-4 * * *",
    "5 0 1 * *",
]
#: Days on whose nights clocks change somewhere.
CHANGES = [(3, 8), (3, 29), (4, 5), (10, 4), (10, 25), (11, 1)]


@settings(deadline=None)
@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(["UTC", BERLIN, "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"]),
    st.sampled_from(CHANGES),
    st.integers(-12 * 60, 24 * 60),
    st.integers(0, 240),
)
def test_every_scheduler_comes_to_the_same_times(
    expression: str, zone: str, day: tuple[int, int], minute: int, later: int
) -> None:
    """Whenever it is asked, also within the hours in which clocks change."""
    when = Cron(expression, zone)
    begin = datetime(2026, *day, tzinfo=UTC) + timedelta(minutes=minute)
    asked = begin + timedelta(minutes=later)
    all_times = [begin]
    while all_times[-1] <= asked:
        all_times.extend(due(when, all_times[-1], 1))
    assert when.after(asked) == all_times[-1]
    assert all(first < second for first, second in pairwise(all_times))


@pytest.mark.parametrize(
    ("expression", "zone", "text"),
    [
        ("* * * *", "UTC", "'* * * *' has not five fields: minute, hour, day of the month"),
        ("* * * * * *", "UTC", "has not five fields"),
        ("61 * * * *", "UTC", "cannot be read: Bad minute"),
        ("0 0 30 2 *", "UTC", "cannot be read: Bad day-of-month"),
        ("@never", "UTC", "has not five fields"),
        ("9" * 900 + " * * * *", "UTC", "cannot be read: Bad minute"),
        ("1" * 5_000 + " * * * *", "UTC", "has 5,008 characters; it has at most 1,000"),
        ("* " * 1_000_000, "UTC", "has 2,000,000 characters; it has at most 1,000"),
        (7, "UTC", "a cron expression is a str such as '30 3 * * *', not int"),
        ("* * * * *", "Europe/Nowhere", "there is no time zone 'Europe/Nowhere' here"),
        ("* * * * *", "../etc/passwd", "there is no time zone"),
        ("* * * * *", 2, "timezone is a name such as 'Europe/Berlin' or a tzinfo, not int"),
    ],
)
def test_each_bad_expression_is_refused(expression: Any, zone: Any, text: str) -> None:
    """At the declaration, with what is wrong."""
    with pytest.raises(InvalidArgument) as caught:
        Cron(expression, timezone=zone)
    assert text in str(caught.value)


def test_an_interval_counts_from_its_start() -> None:
    """From the beginning of 1970 if none is given; nothing is due before it."""
    noon = datetime(2026, 7, 1, 12, 1, tzinfo=UTC)
    assert Every(timedelta(minutes=5)).after(noon) == noon.replace(minute=5)
    assert Every(timedelta(hours=1)).after(noon.replace(minute=0)) == noon.replace(
        hour=13, minute=0
    )
    start = datetime(2026, 7, 1, 14, 7, tzinfo=ZoneInfo(BERLIN))
    every = Every(timedelta(minutes=10), start=start)
    assert every.after(noon) == noon.replace(minute=7)
    assert every.after(noon.replace(minute=7)) == noon.replace(minute=17)
    assert Every(timedelta(days=3650)).after(datetime.max.replace(tzinfo=UTC)) is None


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"interval": 5}, "interval is a timedelta, not int"),
        ({"interval": timedelta(milliseconds=999)}, "interval is 0:00:00.999000; it is from one"),
        ({"interval": timedelta(days=4000)}, "it is from one second to 3650 days"),
        ({"interval": timedelta(1), "start": datetime(2026, 1, 1)}, "a datetime with a timezone"),
        ({"interval": timedelta(1), "start": "now"}, "start is 'now'; it is a datetime"),
    ],
)
def test_each_bad_interval_is_refused(options: dict[str, Any], text: str) -> None:
    """At the declaration, with what is wrong."""
    with pytest.raises(InvalidArgument) as caught:
        Every(**options)
    assert text in str(caught.value)


def test_times_are_shown_as_they_were_declared() -> None:
    """In lists, with the time zone."""
    assert str(Cron("30 3 * * *", BERLIN)) == "30 3 * * * (Europe/Berlin)"
    assert str(Cron("@daily")) == "@daily (UTC)"
    assert str(Every(timedelta(minutes=5))) == "every 0:05:00"
