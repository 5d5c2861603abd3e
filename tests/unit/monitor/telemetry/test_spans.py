"""The sender of spans reads the record in batches and reads on when a batch was accepted."""

from __future__ import annotations

import enum
import random
import time
from types import SimpleNamespace

import pytest

from otel_memwatch.monitor.telemetry.delivery import EndpointHealth, ExporterDelivery
from otel_memwatch.monitor.telemetry.export_log import Answer
from otel_memwatch.monitor.telemetry.exporters import Exporter
from otel_memwatch.monitor.telemetry.spans import SpanSender
from otel_memwatch.record.follower import PollResult

BUSY, WRONG = Answer("answers 503", transient=True), Answer("answers 400")
RUN = "the run"


class Result(enum.Enum):
    SUCCESS = 0
    FAILURE = 1


class FakeExporter:
    """An endpoint that answers as `answer_to` says."""

    def __init__(self, answer_to=lambda batch: Answer()):
        self.answer = Answer()
        self.arrived = []
        self.sizes = []
        self.closed = False
        self._answer_to = answer_to

    def export(self, batch):
        self.answer = self._answer_to(batch)
        self.sizes.append(len(batch))
        if self.answer.problem is not None:
            return Result.FAILURE
        self.arrived += batch
        return Result.SUCCESS

    def shutdown(self):
        self.closed = True


class Record:
    """Numbers instead of operations; those of `exported` are the program's own spans."""

    def __init__(self, number, piece=700):
        self.read = 0
        self._number, self._piece = number, piece

    def poll(self):
        found = list(range(self.read, min(self._number, self.read + self._piece)))
        self.read += len(found)
        return PollResult([SimpleNamespace(name=n) for n in found], 0, self.read < self._number)

    def open_operations(self):
        return []


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr("otel_memwatch.monitor.telemetry.delivery._PAUSE", 0.0)


def _sender(exporter, record, environ=None, span_of=lambda operation: operation.name):
    problems = []
    health = EndpointHealth("the endpoint", "", problems.append, lambda _: None)
    delivery = ExporterDelivery("traces", Exporter(exporter, lambda: exporter.answer), None, health)
    environ = {"OTEL_BSP_SCHEDULE_DELAY": "10", **(environ or {})}
    return SpanSender(delivery, record, span_of, environ), problems


def _wait_for(arrived, number):
    until = time.monotonic() + 30
    while len(arrived) < number and time.monotonic() < until:
        time.sleep(0.005)


def _end(sender, seconds=20.0):
    until = time.monotonic() + seconds
    sender.finish([RUN], until)
    sender.delivery.begin_end(until)
    sender.delivery.end(until)


def test_all_spans_arrive_in_order_if_a_fifth_of_the_requests_is_refused():
    choose = random.Random(1)
    exporter = FakeExporter(lambda _: BUSY if choose.random() < 0.2 else Answer())
    sender, _ = _sender(exporter, Record(20_000))
    sender.start()
    _wait_for(exporter.arrived, 20_000)
    _end(sender)
    exporter.arrived = [one for one in exporter.arrived if one != RUN]
    assert exporter.arrived == list(range(20_000))
    assert max(exporter.sizes) == 512
    assert exporter.closed


def test_the_span_of_the_run_comes_last():
    exporter = FakeExporter()
    sender, problems = _sender(exporter, Record(1300), {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100"})
    sender.start()
    _end(sender)
    assert exporter.arrived == [*range(1300), RUN]
    assert sender.arrived == 1301
    assert max(exporter.sizes) == 100
    assert problems == []


def test_spans_that_the_program_exports_are_omitted():
    exporter = FakeExporter()
    sender, _ = _sender(exporter, Record(10), span_of=lambda one: one.name if one.name % 2 else None)
    sender.start()
    _end(sender)
    assert exporter.arrived == [1, 3, 5, 7, 9, RUN]


def test_a_batch_that_is_refused_for_good_delays_no_other():
    exporter = FakeExporter(lambda batch: WRONG if 0 in batch else Answer())
    sender, problems = _sender(exporter, Record(1000, piece=100), {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "100"})
    sender.start()
    _wait_for(exporter.arrived, 900)
    _end(sender)
    assert exporter.arrived == [*range(100, 1000), RUN]
    assert problems == ["the endpoint answers 400"]


def test_the_record_is_not_read_while_an_endpoint_is_away():
    away = [True]
    record = Record(100_000)
    exporter = FakeExporter(lambda _: BUSY if away[0] else Answer())
    sender, _ = _sender(exporter, record)
    sender.start()
    _wait_for(exporter.sizes, 20)
    assert record.read <= 1400, "one piece of the record waits, not all of it"
    away[0] = False
    _wait_for(exporter.arrived, 100_000)
    _end(sender)
    assert len(exporter.arrived) == 100_001


def test_at_the_end_one_refusal_is_enough():
    exporter = FakeExporter(lambda _: BUSY)
    sender, problems = _sender(exporter, Record(100_000))
    sender.pause()
    sender.start()
    began = time.monotonic()
    _end(sender)
    assert time.monotonic() - began < 10
    assert problems == ["the endpoint answers 503"]


def test_an_exporter_that_raises_is_reported():
    def fail(_):
        raise OSError("no such device")

    exporter = FakeExporter(fail)
    sender, problems = _sender(exporter, Record(10))
    sender.start()
    _end(sender)
    assert problems
    assert "no such device" in problems[0]
    assert exporter.closed


def test_nothing_is_read_beyond_the_time_of_the_end():
    record = Record(10**9)
    exporter = FakeExporter()
    sender, _ = _sender(exporter, record)
    sender.start()
    _end(sender, 0.2)
    sender._thread.join(5)
    read = record.read
    time.sleep(0.05)
    assert record.read == read
    assert exporter.arrived[-1] == RUN
