"""The run's place in a trace, and whether it is sampled: what the target's own sampler would say."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import sampling

from otel_memwatch.monitor.recording.trace_context import run_context

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = {flags: f"00-{TRACE}-00f067aa0ba902b7-{flags}" for flags in ("00", "01")}


@pytest.mark.parametrize(
    ("sampler", "root", "unsampled_parent", "sampled_parent"),
    [
        ("", "01", "00", "01"),
        ("parentbased_always_on", "01", "00", "01"),
        ("parentbased_always_off", "00", "00", "01"),
        ("always_on", "01", "01", "01"),
        ("always_off", "00", "00", "00"),
        ("parentbased_jaeger_remote", "01", "00", "01"),
        ("own", "01", "00", "01"),
    ],
)
def test_the_samplers_of_the_specification(
    sampler: str, root: str, unsampled_parent: str, sampled_parent: str
) -> None:
    given = {"OTEL_TRACES_SAMPLER": sampler}
    assert run_context(given).flags == root
    assert run_context({**given, "TRACEPARENT": PARENT["00"]}).flags == unsampled_parent
    assert run_context({**given, "TRACEPARENT": PARENT["01"]}).flags == sampled_parent


@pytest.mark.parametrize("name", ["traceidratio", "parentbased_traceidratio"])
@pytest.mark.parametrize("ratio", ["0", "0.3", "1", "", "nonsense", "7"])
def test_a_part_of_all_traces_is_the_same_part_as_the_sdk_takes(name: str, ratio: str) -> None:
    usable = ratio in ("0", "0.3", "1")
    sampler = sampling.TraceIdRatioBased(float(ratio) if usable else 1.0)
    flags = set()
    for _ in range(200):
        made = run_context({"OTEL_TRACES_SAMPLER": name, "OTEL_TRACES_SAMPLER_ARG": ratio})
        decided = sampler.should_sample(None, int(made.trace_id, 16), "").decision
        assert made.flags == ("01" if decided.is_sampled() else "00")
        flags.add(made.flags)
    assert flags == {"0": {"00"}, "0.3": {"00", "01"}}.get(ratio, {"01"})


def test_a_parent_that_is_none() -> None:
    made = run_context({"TRACEPARENT": "00-nonsense", "OTEL_TRACES_SAMPLER": "always_off"})
    assert (made.parent_span_id, made.flags) == (None, "00")
