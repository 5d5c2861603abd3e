"""Named tuples and enumerations of ours are such."""

from __future__ import annotations

import copy
import enum
import json
import pickle
from typing import Any

import pytest

from otel_memwatch.model import Column, ProcessEvent, ProcessRecord
from otel_memwatch.runtime.procfs.process import Io
from otel_memwatch.runtime.typed import Enum, NamedTuple, named_tuple


class Point(NamedTuple):
    """A place."""

    x: int
    y: int = 2

    @property
    def far(self) -> bool:
        return self.x > self.y


def test_fields_defaults_and_methods() -> None:
    point = Point(1)
    assert point == (1, 2) == Point(x=1, y=2) == Point(1, y=2) == Point._make([1, 2])
    assert (point.x, point.y, point.far) == (1, 2, False)
    assert point._replace(x=3).far
    assert point._asdict() == {"x": 1, "y": 2}
    assert repr(point) == "Point(x=1, y=2)"
    assert Point._fields == ("x", "y") == Point.__match_args__
    assert Point.__doc__ == "A place."
    assert isinstance(point, tuple)
    with pytest.raises(AttributeError):
        point.x = 4  # type: ignore[misc]
    with pytest.raises(AttributeError):
        point.other = 4  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("values", "named"), [((), {}), ((1, 2, 3), {}), ((1,), {"x": 1}), ((1,), {"z": 1}), ((), {"y": 1})]
)
def test_wrong_calls(values: tuple[int, ...], named: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point"):
        Point(*values, **named)


def test_wrong_replacements_and_lengths() -> None:
    with pytest.raises((TypeError, ValueError)):
        Point(1)._replace(z=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Point._make([1])


def test_copies() -> None:
    record = ProcessRecord(ProcessEvent.SEEN, 1.0, 2, 3.0, command="a")
    assert pickle.loads(pickle.dumps(record)) == record == copy.deepcopy(record)
    assert type(copy.copy(Io(1, 2, 3, 4))) is Io
    match Column("name"):
        case Column(metric, (), period):
            assert (metric, period) == ("name", 0.0)
        case _:
            pytest.fail("no match")


def test_a_constructor_is_compiled_for_many_instances() -> None:
    class Pair(NamedTuple):
        left: int
        right: int = 1

    class Doubled(Pair):
        @classmethod
        def of(cls, value: int) -> Doubled:
            return cls(value, right=value)

    common = Pair.__new__
    assert Doubled.of(2) == (2, 2)
    assert Pair.__new__ is common
    for _ in range(20):
        doubled = Doubled.of(2)
        assert type(doubled) is Doubled
        assert doubled == (2, 2) == Pair(right=2, left=2)
        assert Pair(1) == (1, 1)
    assert Pair.__new__ is not common
    assert "__new__" not in vars(Doubled)


@pytest.mark.parametrize("count", [1, 2, 13, 14, 30])
def test_a_class_may_have_any_number_of_fields(count: int) -> None:
    names = [f"field{number}" for number in range(count)]
    kind: Any = named_tuple(__name__, "Wide", names, {names[-1]: 7})
    for _ in range(12):
        assert (
            kind(*range(count)) == tuple(range(count)) == kind(**dict(zip(names, range(count), strict=True)))
        )
        assert kind(*range(count - 1)) == (*range(count - 1), 7)


@pytest.mark.parametrize("before", [0, 20])
@pytest.mark.parametrize(
    ("values", "named", "sentence"),
    [
        ((), {}, "missing 1 required positional argument: 'x'"),
        ((1, 2, 3), {}, "takes from 2 to 3 positional arguments but 4 were given"),
        ((1,), {"x": 1}, "multiple values for argument 'x'"),
        ((1,), {"z": 1}, "unexpected keyword argument 'z'"),
    ],
)
def test_the_first_wrong_call_is_reported_as_a_later_one(
    values: tuple[int, ...], named: dict[str, int], sentence: str, before: int
) -> None:
    class Place(NamedTuple):
        x: int
        y: int = 2

    for _ in range(before):
        Place(1)
    with pytest.raises(TypeError, match=sentence):
        Place(*values, **named)


class Colour(str, Enum):
    """A colour, with its number."""

    number: int

    def __new__(cls, value: str, number: int) -> Colour:  # noqa: PYI034
        made = str.__new__(cls, value)
        made._value_, made.number = value, number
        return made

    RED = "red", 1
    BLUE = "blue", 2

    @property
    def far(self) -> bool:
        return self.number > 1


class Level(Enum):
    """A level."""

    LOW = "low"
    HIGH = "high"


class TheirLevel(enum.Enum):
    """Python's."""

    LOW = "low"
    HIGH = "high"


def test_members_have_name_value_and_attributes() -> None:
    assert [(one.name, one.value, one.number, one.far) for one in Colour] == [
        ("RED", "red", 1, False),
        ("BLUE", "blue", 2, True),
    ]
    assert Colour("red") is Colour.RED
    assert {"red": 1}[Colour.RED] == 1
    assert json.dumps([Colour.RED]) == '["red"]'
    assert (len(Colour), Colour.BLUE in Colour, isinstance(Colour.RED, Colour)) == (2, True, True)
    assert (str(Colour.RED), repr(Colour.RED)) == ("Colour.RED", "<Colour.RED: 'red'>")
    for member in (Colour.BLUE, Level.LOW):
        assert pickle.loads(pickle.dumps(member)) is member is copy.deepcopy(member) is copy.copy(member)


def test_enumerations_are_like_those_of_python() -> None:
    for ours, theirs in zip(Level, TheirLevel, strict=True):
        assert (ours.name, ours.value) == (theirs.name, theirs.value)
        assert f"Their{ours}" == str(theirs)
        assert repr(ours).replace("Level", "TheirLevel") == repr(theirs)
    assert list(Level.__members__) == list(TheirLevel.__members__)
    for wrong in ("middle", ["low"], None):
        for kind in (Level, TheirLevel):
            with pytest.raises(ValueError, match=f"is not a valid {kind.__name__}"):
                kind(wrong)
