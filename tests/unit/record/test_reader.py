"""A run directory is read whatever state it was left in; what is none is refused in one sentence."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from otel_memwatch.errors import RunError
from otel_memwatch.model import Certainty, ProcessEvent, ProcessRecord
from otel_memwatch.record import sample_lines
from otel_memwatch.record.format import PROCESSES_FILE, RUN_FILE, SAMPLES_FILE
from otel_memwatch.record.jsonl import Damage
from otel_memwatch.record.open import read_run
from otel_memwatch.record.sample_lines import is_sample, sample_blocks
from otel_memwatch.run import load
from tests.support.run_directory import MIB, PID, STARTED, RunDirectory, column

RSS = column("memwatch.tree.memory.usage")
PSS = column("memwatch.tree.memory.pss", 5.0)
READ = column("memwatch.tree.disk.io", disk__io__direction="read")
WRITE = column("memwatch.tree.disk.io", disk__io__direction="write")


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    built = RunDirectory(tmp_path / "run")
    built.columns([RSS, READ, WRITE, PSS])
    for place in range(10):
        built.tick(place / 10, place * MIB, place, None, 7 * MIB if place == 5 else None)
    built.process(
        ProcessRecord(ProcessEvent.SEEN, STARTED, PID, STARTED, 1, "python", ("python", "x"), rss=MIB)
    )
    built.process(ProcessRecord(ProcessEvent.EXIT, STARTED + 0.9, PID, STARTED, peak=9 * MIB, exit_code=0))
    return built


class TestRefusals:
    def refused(self, path: Path | str, *words: str) -> RunError:
        with pytest.raises(RunError) as caught:
            read_run(path)
        assert all(word in str(caught.value) for word in words), str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.message.endswith(".")
        return caught.value

    def test_missing(self, tmp_path: Path) -> None:
        self.refused(tmp_path / "nothing", "There is no run", "otel-memwatch runs")

    def test_a_file(self, directory: RunDirectory) -> None:
        self.refused(directory.path / RUN_FILE, "is a file")

    def test_empty(self, tmp_path: Path) -> None:
        self.refused(tmp_path, "is empty")

    def test_foreign(self, tmp_path: Path) -> None:
        (tmp_path / "setup.py").write_text("")
        self.refused(tmp_path, "is not a run directory")

    def test_directory_of_runs(self, directory: RunDirectory) -> None:
        self.refused(directory.path.parent, "contains 1 run", str(directory.path))

    def test_a_name_that_no_file_can_have(self) -> None:
        self.refused("a\0b", "cannot be read")
        self.refused("x" * 5000, "cannot be read")

    @pytest.mark.parametrize("content", [b"", b"  \n", b"\0" * 4096])
    def test_empty_description(self, directory: RunDirectory, content: bytes) -> None:
        (directory.path / RUN_FILE).write_bytes(content)
        self.refused(directory.path, "is empty", "lost")

    def test_truncated_description(self, directory: RunDirectory) -> None:
        whole = (directory.path / RUN_FILE).read_bytes()
        for length in (1, len(whole) // 2, len(whole) - 1):
            (directory.path / RUN_FILE).write_bytes(whole[:length])
            self.refused(directory.path, "not complete JSON")

    @pytest.mark.parametrize(
        "content", ["[]", '"x"', "3", "true", "{}", '{"schema": "1"}', '{"schema": null}']
    )
    def test_description_of_something_else(self, directory: RunDirectory, content: str) -> None:
        (directory.path / RUN_FILE).write_text(content)
        self.refused(directory.path, "does not describe a run")

    def test_nested_without_end(self, directory: RunDirectory) -> None:
        (directory.path / RUN_FILE).write_text("[" * 200_000)
        self.refused(directory.path, "not complete JSON")

    def test_newer_schema(self, directory: RunDirectory) -> None:
        directory.write_info(schema=3)
        self.refused(directory.path, "newer version", "upgrade")

    def test_description_that_cannot_be_read(self, directory: RunDirectory) -> None:
        (directory.path / RUN_FILE).unlink()
        (directory.path / RUN_FILE).mkdir()
        self.refused(directory.path, "cannot be read", "directory")


class TestSamples:
    def test_columns_and_ticks(self, directory: RunDirectory) -> None:
        record = read_run(directory.path)
        assert record.columns == (RSS, READ, WRITE, PSS)
        ticks = list(record.sample_values())
        assert ticks[5] == (STARTED + 0.5, (5 * MIB, 5, None, 7 * MIB))
        assert ticks[9] == (STARTED + 0.9, (9 * MIB, 9, None, None))
        assert record.damage == []

    def test_arrays(self, directory: RunDirectory) -> None:
        samples = read_run(directory.path).samples()
        assert len(samples) == 10
        assert samples.time == pytest.approx(np.arange(10) / 10)
        assert samples.column("memwatch.tree.disk.io", {"disk.io.direction": "read"})[9] == 9
        assert np.isnan(samples.column("memwatch.tree.disk.io", {"disk.io.direction": "write"})).all()
        assert np.isnan(samples.column("no.such.metric")).all()
        time, values = samples.known(PSS)
        assert (time.tolist(), values.tolist()) == ([pytest.approx(0.5)], [7 * MIB])

    def test_only_what_is_wanted(self, directory: RunDirectory) -> None:
        record = read_run(directory.path)
        few = record.samples({RSS.metric})
        assert few.columns == (RSS,)
        assert record.samples({RSS.metric}) is few
        every = record.samples()
        assert every.columns == (RSS, READ, WRITE, PSS)
        assert record.samples({RSS.metric}) is every

    def test_asking_for_other_columns_keeps_those_read_before(self, directory: RunDirectory) -> None:
        record = read_run(directory.path)
        record.samples({RSS.metric})
        both = record.samples({PSS.metric})
        assert both.columns == (RSS, PSS)
        assert record.samples({RSS.metric}) is both

    @pytest.mark.parametrize("missing", [SAMPLES_FILE, PROCESSES_FILE])
    def test_a_run_that_was_killed_at_once(self, directory: RunDirectory, missing: str) -> None:
        (directory.path / missing).unlink()
        run = load(directory.path)
        assert run.quality["ticks"] == (0 if missing == SAMPLES_FILE else 10)
        assert len(run.samples()) == run.quality["ticks"]
        assert len(run.processes) == (1 if missing == SAMPLES_FILE else 0)
        assert run.operations == ()

    def test_a_header_in_the_middle(self, directory: RunDirectory) -> None:
        swap = column("memwatch.tree.memory.swap")
        directory.columns([swap, RSS])
        directory.tick(1.0, 3, 100 * MIB)
        record = read_run(directory.path)
        samples = record.samples()
        assert len(samples) == 11
        assert samples.values(RSS)[-1] == 100 * MIB
        assert samples.values(swap)[-1] == 3
        assert np.isnan(samples.values(swap)[:10]).all()
        assert np.isnan(samples.values(READ)[-1])
        assert list(record.sample_values())[-1] == (STARTED + 1.0, (100 * MIB, None, None, None, 3))
        assert record.damage == []

    def test_ticks_without_a_header_are_damage(self, tmp_path: Path) -> None:
        built = RunDirectory(tmp_path)
        built.tick(0.1, 1)
        record = read_run(tmp_path)
        assert len(record.samples()) == 0
        assert record.damage == ["samples.jsonl: 1 line could not be read and left out."]


class TestDamage:
    def test_a_torn_last_line_is_normal(self, directory: RunDirectory) -> None:
        directory.append(SAMPLES_FILE, b"[1001.0,12")
        directory.append(PROCESSES_FILE, b'{"event":"ex')
        record = read_run(directory.path)
        assert len(record.samples()) == 10
        assert len(record.processes) == 2
        assert record.damage == []

    def test_a_last_line_without_its_end_counts(self, directory: RunDirectory) -> None:
        directory.append(SAMPLES_FILE, b"[1001.0,12]")
        assert len(read_run(directory.path).samples()) == 11

    @pytest.mark.parametrize(
        "line",
        [
            b"garbage", b"\xff\xfe\x00\x01", b"[1001", b"null", b"17", b'"text"', b"[]", b"[null,1]", b'["a",1]', b"[1001,[1]]",
            b'[1001,"x"]', b"[1001,{}]", b"[1001,1,2,3,4,5]", b"[1001,1],[1001,2]", b"[1e999,1]", b"[1001," + b"9" * 400 + b"]",
            b"[" * 100_000, b"[1001," + b"9" * 5000 + b"]", b'{"columns":3}', b'{"columns":[{"metric":5}]}', b"[NaN,1]",
        ],
        ids=lambda line: repr(line[:24]),
    )  # fmt: skip
    def test_a_corrupt_line_in_the_middle(self, directory: RunDirectory, line: bytes) -> None:
        directory.append(SAMPLES_FILE, line + b"\n")
        directory.tick(1.1, 11 * MIB)
        record = read_run(directory.path)
        samples = record.samples()
        assert len(samples) == 11
        assert samples.values(RSS)[-1] == 11 * MIB
        assert record.damage == ["samples.jsonl: 1 line could not be read and left out."]
        assert len(list(record.sample_values())) == 11
        assert record.damage == ["samples.jsonl: 1 line could not be read and left out."]

    def test_not_a_number_is_not_known(self, directory: RunDirectory) -> None:
        directory.append(SAMPLES_FILE, b"[1001.1,NaN,Infinity,1e999]\n")
        samples = read_run(directory.path).samples()
        assert len(samples) == 11
        assert all(np.isnan(samples.values(c)[-1]) for c in samples.columns)

    def test_a_block_of_nul(self, directory: RunDirectory) -> None:
        directory.append(SAMPLES_FILE, b"\0" * 5000)
        directory.tick(1.1, 11 * MIB)
        directory.append(SAMPLES_FILE, b"\0" * 5000)
        record = read_run(directory.path)
        assert len(record.samples()) == 11
        assert record.damage == []

    def test_a_huge_line(self, directory: RunDirectory) -> None:
        directory.append(SAMPLES_FILE, b"[1001.0," + b" " * (20 * MIB) + b"5]\n")
        directory.tick(1.1, 11 * MIB)
        record = read_run(directory.path)
        assert len(record.samples()) == 11
        assert record.damage == ["samples.jsonl: 1 line could not be read and left out."]

    def test_a_time_that_went_wrong(self, directory: RunDirectory) -> None:
        for seconds in (1e9, 1.1, -500.0, 1.2):
            directory.tick(seconds, 11 * MIB)
        record = read_run(directory.path)
        assert record.samples().time[-2:] == pytest.approx([1.1, 1.2])
        assert len(record.samples()) == 12
        assert record.damage == ["samples.jsonl: 2 lines could not be read and left out."]

    def test_processes(self, directory: RunDirectory) -> None:
        for line in (
            '{"event":"born"}',
            '{"event":"exit","pid":"x","time":1,"start":1}',
            "[]",
            '{"event":"exit"}',
        ):
            directory.append(PROCESSES_FILE, line + "\n")
        record = read_run(directory.path)
        assert len(record.processes) == 2
        assert record.damage == ["processes.jsonl: 4 lines could not be read and left out."]

    def test_names_that_are_not_text(self, directory: RunDirectory) -> None:
        directory.append(
            PROCESSES_FILE,
            b'{"event":"seen","time":1,"pid":7,"start":1,"command":"\xff","argv":["a\xfe",3]}\n',
        )
        last = read_run(directory.path).processes[-1]
        assert (last.command, last.argv) == ("\udcff", ("a\udcfe",))

    def test_fields_of_wrong_kinds(self, directory: RunDirectory) -> None:
        wrong = dict.fromkeys(directory.info, 7) | {"schema": 1}
        for value in (7, "x", None, [], [7], {"": 7}):
            directory.write_info(**dict.fromkeys(wrong, value) | {"schema": 1})
            touch_everything(directory.path)


ODD = ["true", '"1"', "[2]", "{}", "1e999", "-1e999", "9" * 400, "1e5", "-0", "null", "NaN", "0.5", "9" * 299]
"""Values of a tick as they may stand in a file, most of which no tick has."""


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from(ODD), min_size=1, max_size=3), min_size=1, max_size=4))
def test_a_block_of_ticks_is_looked_at_as_each_of_them_would_be(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    path = tmp_path_factory.mktemp("odd") / SAMPLES_FILE
    header = json.dumps({"columns": [{"metric": "a"}, {"metric": "b"}]})
    path.write_text("\n".join([header, *(f"[{','.join(row)}]" for row in rows), ""]))
    for block in sample_blocks(path, Damage(SAMPLES_FILE)):
        assert not block.sound or all(map(is_sample, block.rows))
    plain = {"-0", "null", "0.5"}
    if all(set(row) <= plain and row[0] != "null" for row in rows):
        assert next(sample_blocks(path, Damage(SAMPLES_FILE))).sound


TOKENS = [
    "null", "0", "17", "0.5", "-3", "1e-05", "2.1E+3", "0.1234567890123456", "99999999999999999",
    "0.99999999999999999", "1e999", "-0", "NaN", "Infinity", "00", "01", "-01", "1.", "0.", ".5", "-", "e", "1e", "--1",
    "1..2", "1.2.3", "", "nul", "nulll", "nullnull", "1null", "null1", "0.null", "-null", "1e-null", "[", "]", "[1]",
    '"a"', "true", "{}", "+1", "1-2", "1e5.5",
]  # fmt: skip


@given(st.lists(st.lists(st.sampled_from(TOKENS), min_size=1, max_size=5), min_size=1, max_size=3))
@settings(max_examples=300)
def test_a_long_file_is_read_as_a_short_one(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]]
) -> None:
    """`msgspec` and `json` give the same numbers, to the bit, and the same damage."""
    path = tmp_path_factory.mktemp("odd") / SAMPLES_FILE
    header = json.dumps({"columns": [{"metric": name} for name in "abcd"]})
    path.write_text("\n".join([header, *(f"[1000.5,{','.join(text)}]" for text in texts), ""]))
    found = []
    for plain in (True, False):
        damage = Damage(SAMPLES_FILE)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sample_lines, "_LONG", -1)
            blocks = list(sample_blocks(path, damage, plain=plain))
        rows = [row for block in blocks for row in block.rows if block.sound or is_sample(row)]
        assert all(map(is_sample, rows))
        found.append((repr(rows), damage.lines))
    assert found[0] == found[1]


class TestReduced:
    @settings(deadline=None)
    @given(st.lists(st.one_of(st.none(), st.integers(0, 10**12)), max_size=60), st.integers(1, 20))
    def test_every_peak_stays(
        self, tmp_path_factory: pytest.TempPathFactory, values: list[int | None], bins: int
    ) -> None:
        built = RunDirectory(tmp_path_factory.mktemp("run"))
        built.columns([RSS])
        for place, value in enumerate(values):
            built.tick(place / 10, value)
        reduced = read_run(built.path).samples().reduced(RSS, bins)
        known = [value for value in values if value is not None]
        assert len(reduced.time) <= max(bins, 0)
        assert max(reduced.high, default=None) == max(known, default=None)
        assert min(reduced.low, default=None) == min(known, default=None)
        assert (reduced.low <= reduced.high).all()
        assert (np.diff(reduced.time) > 0).all()

    def test_a_stretch(self, directory: RunDirectory) -> None:
        samples = read_run(directory.path).samples()
        assert samples.reduced(RSS, 100, start=0.25, end=0.55).high.tolist() == [3 * MIB, 4 * MIB, 5 * MIB]
        assert samples.reduced(RSS.metric, 2).high.tolist() == [4 * MIB, 9 * MIB]
        assert len(samples.reduced("no.such.metric").time) == 0


def touch_everything(path: Path) -> None:
    """Reads all that reports read."""
    run = load(path)
    assert run.state in {"finished", "running", "incomplete"}
    assert run.seconds >= 0
    _ = run.peaks.to_json(), run.totals, run.quality, run.marks, run.limits, run.sources
    assert run.ending.reason
    for operation in run.operations:
        assert operation.parent is None or run.operations[operation.parent].depth == operation.depth - 1
    for process in run.processes:
        assert process.peak is None or process.peak.certainty in Certainty
    samples = run.samples()
    assert (np.diff(samples.time) >= 0).all()
    assert all(len(samples.values(c)) == len(samples) for c in samples.columns)
    for time, values in run.record.sample_values():
        assert np.isfinite(time)
        assert len(values) == len(run.record.columns)
    one_by_one, damage = [(time, *values) for time, values in run.record.sample_values()], run.damage
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_lines, "_LONG", -1)
        assert [(time, *values) for time, values in run.record.sample_values()] == one_by_one
        assert run.damage == damage
    assert all(isinstance(sentence, str) for sentence in run.damage)


OPERATIONS_FILE = f"operations-{PID}.jsonl"
FILES = (RUN_FILE, SAMPLES_FILE, PROCESSES_FILE, OPERATIONS_FILE)


def full(path: Path, **fields: object) -> RunDirectory:
    built = RunDirectory(path, **{"host": {}, **fields})
    built.columns([RSS, PSS])
    for place in range(4):
        built.tick(place / 10, place * MIB, MIB)
    built.process(
        ProcessRecord(ProcessEvent.SEEN, STARTED, PID, STARTED, 1, "python", ("python", "x"), rss=MIB)
    )
    built.process(ProcessRecord(ProcessEvent.EXIT, STARTED + 0.9, PID, STARTED, peak=9 * MIB, exit_code=0))
    built.operations(
        [
            {
                "open": 1,
                "time": 0.1,
                "name": "a",
                "trace": "t",
                "span": "s1",
                "parent": None,
                "rss": MIB,
                "segment": MIB,
            },
            {
                "open": 2,
                "time": 0.2,
                "name": "b",
                "trace": "t",
                "span": "s2",
                "parent": "s1",
                "rss": MIB,
                "segment": MIB,
            },
            {
                "close": 2,
                "time": 0.3,
                "status": "ok",
                "rss": MIB,
                "segment": 2 * MIB,
                "peak": 2 * MIB,
                "certainty": "exact",
            },
        ]
    )
    return built


def readable(path: Path) -> None:
    """Either everything can be read, or the one error for it is raised."""
    with contextlib.suppress(RunError):
        touch_everything(path)


class TestAnyBytes:
    @pytest.mark.parametrize("state", ["running", "finished"])
    @pytest.mark.parametrize("name", FILES)
    def test_cut_anywhere(self, tmp_path: Path, name: str, state: str) -> None:
        built = full(tmp_path, state=state)
        whole = (tmp_path / name).read_bytes()
        assert whole
        step = max(1, len(whole) // 150)
        for length in range(0, len(whole), step):
            (tmp_path / name).write_bytes(whole[:length])
            readable(built.path)

    @settings(deadline=None, max_examples=60)
    @given(st.sampled_from(FILES), st.binary(max_size=60), st.integers(0, 2000), st.booleans())
    def test_overwritten_anywhere(
        self, tmp_path_factory: pytest.TempPathFactory, name: str, data: bytes, offset: int, newline: bool
    ) -> None:
        built = full(tmp_path_factory.mktemp("run"), state="running")
        file = built.path / name
        whole = file.read_bytes()
        offset %= len(whole)
        data += b"\n" if newline else b""
        file.write_bytes(whole[:offset] + data + whole[offset + len(data) :])
        readable(built.path)

    json_values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
        max_leaves=8,
    )

    @settings(deadline=None, max_examples=100)
    @given(st.sampled_from(FILES), json_values, st.data())
    def test_any_json_in_any_field(
        self, tmp_path_factory: pytest.TempPathFactory, name: str, value: object, data: st.DataObject
    ) -> None:
        built = full(
            tmp_path_factory.mktemp("run"), state=data.draw(st.sampled_from(["running", "finished"]))
        )
        file = built.path / name
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        line = data.draw(st.sampled_from(lines))
        if isinstance(line, dict):
            line[data.draw(st.sampled_from(sorted(line)))] = value
        else:
            line[data.draw(st.integers(0, len(line) - 1))] = value
        file.write_text("".join(json.dumps(each) + "\n" for each in lines))
        readable(built.path)


def test_columns_of_a_source_that_opened_late(directory: RunDirectory) -> None:
    """A second header in the middle adds its columns; earlier ticks do not know them."""
    first = {"metric": "process.memory.usage", "unit": "By", "attributes": {}, "period": 0}
    late = {"metric": "hw.gpu.memory.usage", "unit": "By", "attributes": {"hw.id": "GPU-1"}, "period": 1}
    lines = [
        json.dumps({"schema": 1, "columns": [first]}),
        "[100.0,1]",
        json.dumps({"schema": 1, "columns": [first, late]}),
        "[100.1,2,3]",
    ]
    (directory.path / SAMPLES_FILE).write_text("\n".join(lines) + "\n")
    record = read_run(directory.path)
    assert [column.metric for column in record.columns] == ["process.memory.usage", "hw.gpu.memory.usage"]
    assert [values for _, values in record.sample_values()] == [(1, None), (2, 3)]


@pytest.mark.parametrize("sought", [1, 2, 3, 7, 64, 1 << 20])
def test_columns_are_found_wherever_the_file_is_cut(
    sought: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Headers at the beginning, in the middle and at the end, whose lines lie across the parts that are read."""
    built = RunDirectory(tmp_path / "run")
    built.columns([RSS])
    built.tick(1.0, 5)
    built.columns([RSS, READ])
    built.tick(1.1, 5, 6)
    built.columns([PSS])
    monkeypatch.setattr("otel_memwatch.record.sample_lines._SOUGHT", sought)
    assert read_run(built.path).columns == (RSS, READ, PSS)
