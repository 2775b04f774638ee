"""Parses the periods of policies: cron lines that match the minutes (or seconds) in which a policy applies.

In `[[runners.autoscaler.policy]]` a line has five fields, all of which must match. In Docker Machine sections it may
also have six (year last) or seven (seconds first, too); then, if both day fields are restricted, one match is enough.
Ranges may wrap around (`22-6`, `fri-mon`), 0 and 7 are Sunday. Cron libraries do not fit: they compute next times and
refuse or misread ranges that wrap around."""

import re
from calendar import monthrange
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_DAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_PART = re.compile(r"(?P<first>\*|\?|\w{1,9})(?:-(?P<last>\w{1,9}))?(?:/(?P<step>\d{1,4}))?", re.ASCII)


class PeriodError(ValueError):
    """A period or a time zone is invalid; the text says what to write instead."""


class _Field(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_SECOND = _Field(name="second", low=0, high=59)
_FIVE = (
    _Field(name="minute", low=0, high=59),
    _Field(name="hour", low=0, high=23),
    _Field(name="day of month", low=1, high=31),
    _Field(name="month", low=1, high=12, names=_MONTHS),
    _Field(name="day of week", low=0, high=6, names=_DAYS),
)
_YEAR = _Field(name="year", low=1970, high=2199)
_SHAPES = {5: _FIVE, 6: (*_FIVE, _YEAR), 7: (_SECOND, *_FIVE, _YEAR)}


class Period(msgspec.Struct, frozen=True, kw_only=True):
    text: str
    seconds: frozenset[int]
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    years: frozenset[int]
    either_day: bool
    """A day matches by day of month or day of week; otherwise both must match."""

    @property
    def is_always(self) -> bool:
        sizes = (self.seconds, 60), (self.minutes, 60), (self.hours, 24), (self.days, 31), (self.months, 12)
        return all(len(values) == size for values, size in (*sizes, (self.weekdays, 7), (self.years, _YEARS)))

    @property
    def is_never(self) -> bool:
        """True if no day of the calendar matches, such as the 31st of February."""
        days = (
            (first + day - 1, day)
            for year in self.years
            for month in self.months
            for first, length in [monthrange(year, month)]
            for day in range(1, length + 1)
        )
        return not any(self._has(day, (weekday + 1) % 7) for weekday, day in days)

    @property
    def is_by_the_second(self) -> bool:
        return len(self.seconds) < 60

    def matches(self, local: datetime) -> bool:
        """True if the period contains this time, given in the time zone of the policy."""
        return (
            local.minute in self.minutes
            and local.hour in self.hours
            and self._has(local.day, local.isoweekday() % 7)
            and local.month in self.months
            and local.second in self.seconds
            and local.year in self.years
        )

    def _has(self, day: int, weekday: int) -> bool:
        by_date, by_weekday = day in self.days, weekday in self.weekdays
        return by_date or by_weekday if self.either_day else by_date and by_weekday


_YEARS = _YEAR.high - _YEAR.low + 1


@lru_cache(maxsize=1024)
def period(line: str, *, machine: bool = False) -> Period:
    """Parse a cron line. `machine`: from a Docker Machine section, so six or seven fields are allowed, too. Raises
    PeriodError if the number of fields or a field is wrong."""
    fields = line.split()
    shape = _SHAPES.get(len(fields))
    if shape is None or (len(fields) != 5 and not machine):
        counts = "5, 6 or 7" if machine else "5"
        raise PeriodError(
            f"the period {line!r} has {len(fields)} fields and not {counts}; write minute, hour, day of month, month "
            "and day of week, for example '* 8-18 * * mon-fri'"
        )
    values = {field.name: _values(text, field, line) for text, field in zip(fields, shape, strict=True)}
    days, weekdays = values["day of month"], values["day of week"]
    return Period(
        text=line,
        seconds=values.get("second", _all(_SECOND)),
        minutes=values["minute"],
        hours=values["hour"],
        days=days,
        months=values["month"],
        weekdays=weekdays,
        years=values.get("year", _all(_YEAR)),
        either_day=len(fields) > 5 and len(days) < 31 and len(weekdays) < 7,
    )


@lru_cache(maxsize=256)
def zone(name: str, local: tzinfo = UTC) -> tzinfo:
    """The time zone of that name, or `local` for an empty name or "Local". Raises PeriodError if it is unknown."""
    if name in ("", "Local"):
        return local
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise PeriodError(
            f"there is no time zone {name!r}; give a name of the time zone database, such as Europe/Berlin"
        ) from None


def _all(field: _Field) -> frozenset[int]:
    return frozenset(range(field.low, field.high + 1))


def _values(text: str, field: _Field, line: str) -> frozenset[int]:
    values: set[int] = set()
    for part in text.lower().split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise _mistake(part, field, line)
        first, last, step = match["first"], match["last"], int(match["step"] or 1)
        if step < 1 or (first in "*?" and last):
            raise _mistake(part, field, line)
        if first in "*?":
            begin, end = field.low, field.high
        else:
            begin = _number(first, field, line)
            # A single value with a step goes on to the end of its field, as in other cron programs.
            end = _number(last, field, line) if last else field.high if match["step"] else begin
        if begin > end and field is _YEAR:
            raise _mistake(part, field, line)
        span = field.high - field.low + 1
        # 0-7 is Sunday to Sunday: the whole week.
        length = span if (first, last) == ("0", "7") and field.names is _DAYS else (end - begin) % span + 1
        values |= {field.low + (begin - field.low + offset) % span for offset in range(0, length, step)}
    return frozenset(values)


def _number(word: str, field: _Field, line: str) -> int:
    for number, name in enumerate(field.names, start=field.low):
        if len(word) >= 3 and name.startswith(word):
            return number
    if not word.isdigit():
        raise _mistake(word, field, line)
    number = int(word)
    if field.names is _DAYS and number == 7:
        return 0
    if not field.low <= number <= field.high:
        raise _mistake(word, field, line)
    return number


def _mistake(part: str, field: _Field, line: str) -> PeriodError:
    names = f" or {field.names[0][:3]} to {field.names[-1][:3]}" if field.names else ""
    return PeriodError(
        f"{part!r} in the period {line!r} is no {field.name}; write {field.low} to {field.high}{names}, "
        "a list (1,3), a range (8-18) or a step (*/2)"
    )
