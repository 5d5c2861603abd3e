"""What is said of an endpoint, and how an exporter that fails is handled; no thread, no network."""

from __future__ import annotations

import enum

import pytest

from otel_memwatch.monitor.telemetry.delivery import EndpointHealth, ExporterDelivery
from otel_memwatch.monitor.telemetry.export_log import Answer
from otel_memwatch.monitor.telemetry.exporters import Exporter


class Result(enum.Enum):
    SUCCESS = 0
    FAILURE = 1


class FakeExporter:
    """Answers one after another of `answers`, then success."""

    def __init__(self, *answers):
        self.answer = Answer()
        self.batches = []
        self._answers = list(answers)

    def export(self, batch, timeout_millis=0):
        self.batches.append(batch)
        self.answer = self._answers.pop(0) if self._answers else Answer()
        return Result.FAILURE if self.answer.problem else Result.SUCCESS


class Health(EndpointHealth):
    def __init__(self):
        self.problems = []
        self.recoveries = []
        super().__init__("the endpoint", "; hint", self.problems.append, self.recoveries.append)


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr("otel_memwatch.monitor.telemetry.delivery._PAUSE", 0.0)


def _delivery(signal, *answers):
    exporter = FakeExporter(*answers)
    health = Health()
    delivery = ExporterDelivery(signal, Exporter(exporter, lambda: exporter.answer), None, health)
    return delivery, exporter, health


BUSY = Answer("answers 503", transient=True)
WRONG = Answer("answers 400")


@pytest.mark.parametrize(
    ("signal", "answers", "attempts", "arrived", "failures"),
    [
        ("traces", [], 1, 2, 0),
        ("traces", [BUSY, BUSY], 3, 2, 2),
        ("traces", [WRONG], 1, 0, 1),
        ("traces", [BUSY, WRONG], 2, 0, 2),
        ("metrics", [BUSY], 1, 0, 1),
    ],
)
def test_what_is_offered_again(signal, answers, attempts, arrived, failures):
    delivery, exporter, _ = _delivery(signal, *answers)
    exporter.export(["a", "b"], timeout_millis=5)
    assert exporter.batches == [["a", "b"]] * attempts
    assert (delivery.arrived, delivery.failures) == (arrived, failures)


def test_an_endpoint_is_left_alone_for_as_long_as_it_asks(monkeypatch):
    delivery, exporter, _ = _delivery("traces", BUSY._replace(retry_after=30.0), BUSY)
    waits = []
    monkeypatch.setattr(delivery._ending, "wait", waits.append)
    exporter.export(["a"])
    assert waits == [30.0, 0.0]


def test_two_signals_with_one_problem_are_one_sentence():
    health = Health()
    health.failed("metrics", "refuses connections")
    health.failed("traces", "refuses connections")
    health.failed("metrics", "refuses connections")
    assert health.problems == ["the endpoint refuses connections; hint"]
    health.delivered("metrics")
    assert health.recoveries == []
    health.delivered("traces")
    health.delivered("metrics")
    assert health.recoveries == ["the endpoint takes telemetry again"]
    health.failed("metrics", "refuses connections")
    assert len(health.problems) == 2


def test_another_problem_is_another_sentence():
    health = Health()
    health.failed("metrics", "answers 503")
    health.failed("metrics", "answers 401")
    assert health.problems == ["the endpoint answers 503; hint", "the endpoint answers 401; hint"]


def test_nothing_is_said_of_an_exporter_that_has_been_stopped():
    health = Health()
    health.close()
    health.failed("metrics", "closed")
    health.delivered("metrics")
    assert health.problems == health.recoveries == []


def test_rejections_are_said_once_for_each_reason():
    delivery, exporter, health = _delivery(
        "traces",
        Answer(rejected=3, words="too old"),
        Answer(rejected=4, words="too old"),
        Answer(rejected=1, words="too long"),
    )
    for _ in range(3):
        exporter.export(["a"])
    assert health.problems == [
        "the endpoint rejected 3 spans: too old",
        "the endpoint rejected 1 spans: too long",
    ]
    assert delivery.failures == 0


@pytest.mark.parametrize(("lost", "said"), [(0, 0), (7, 1)])
def test_what_was_lost_is_counted(lost, said):
    health = Health()
    health.lost(lost)
    assert len(health.problems) == said
    assert all(
        problem.startswith(f"{lost} spans were not delivered to the endpoint; hint")
        for problem in health.problems
    )
