"""The catalogue against the installed opentelemetry-semantic-conventions: names, units, kinds."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest

from otel_memwatch.catalog import METRICS, Instrument, Stability, prometheus_names
from otel_memwatch.run.spans import SCHEMA_URL

_KINDS = {
    "create_counter": Instrument.COUNTER,
    "create_observable_counter": Instrument.COUNTER,
    "create_up_down_counter": Instrument.UP_DOWN_COUNTER,
    "create_observable_up_down_counter": Instrument.UP_DOWN_COUNTER,
    "create_gauge": Instrument.GAUGE,
    "create_observable_gauge": Instrument.GAUGE,
    "create_histogram": Instrument.HISTOGRAM,
}


class _Meter:
    def __init__(self):
        self.made = {}

    def __getattr__(self, method):
        def create(name, *_, unit="", **__):
            self.made[name] = (_KINDS[method], unit)

        return create


def _conventions():
    meter = _Meter()
    for area in ("process", "system", "hw"):
        module = importlib.import_module(f"opentelemetry.semconv._incubating.metrics.{area}_metrics")
        for name, function in vars(module).items():
            if name.startswith("create_") and inspect.isfunction(function):
                arguments = {"callbacks": []} if "callbacks" in inspect.signature(function).parameters else {}
                function(meter, **arguments)
    return meter.made


CONVENTIONS = _conventions()
ROWS = list(METRICS.values())


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.stability is not Stability.MEMWATCH], ids=lambda row: row.name
)
def test_a_conventional_name_has_the_kind_and_unit_of_the_convention(row):
    assert CONVENTIONS[row.name] == (row.instrument, row.unit)


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.stability is Stability.MEMWATCH], ids=lambda row: row.name
)
def test_an_own_name_is_under_our_prefix_and_follows_the_rules(row):
    assert row.name.startswith("memwatch.")
    assert row.name not in CONVENTIONS
    assert not row.name.endswith((".total", "_total"))
    assert row.unit in {"By", "By/s", "s", "W", "J", "Cel", "Hz", "1"} or re.fullmatch(
        r"\{[a-z_]+\}(/s)?", row.unit
    )
    if row.unit == "1" and row.instrument is Instrument.GAUGE:
        assert len(prometheus_names(row)) == 2, "it has two names in Prometheus, and both must be known"


def test_attributes_are_those_of_the_conventions_or_ours():
    known = set()
    for area in ("process", "system", "hw", "cpu", "disk", "network", "error"):
        module = importlib.import_module(f"opentelemetry.semconv._incubating.attributes.{area}_attributes")
        known |= {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}
    # In the conventions, not yet in the installed package's constants.
    known |= {"process.context_switch.type", "system.paging.fault.type", "error.type"}
    named = [(row.name, attribute) for row in ROWS for attribute in row.attributes]
    assert named
    for name, attribute in named:
        assert attribute.startswith("memwatch.") or attribute in known, (name, attribute)


def test_the_schema_is_a_version_of_the_conventions():
    from opentelemetry.semconv.schemas import Schemas

    assert SCHEMA_URL in {schema.value for schema in Schemas}
