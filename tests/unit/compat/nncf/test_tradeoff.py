"""Accuracy against footprint: the table, the plot and every way in which a file can be wrong."""

from __future__ import annotations

import csv
import errno
import io
import json
from pathlib import Path

import pytest

from otel_memwatch.compat.nncf import tradeoff
from otel_memwatch.compat.nncf.tradeoff import TradeoffError, figure, markdown, read, write

SAMPLE = Path(__file__).parents[3] / "data" / "phi3_asym.csv"
GOLDEN = Path(__file__).parents[3] / "golden" / "phi3_asym.md"


def rows() -> tuple[list[str], list[list[str]]]:
    with SAMPLE.open(newline="") as file:
        header, *body = list(csv.reader(file))
    return header, body


def save(path: Path, header: list[str], body: list[list[str]]) -> Path:
    text = io.StringIO()
    csv.writer(text).writerows([header, *body])
    path.write_text(text.getvalue())
    return path


def changed(tmp_path: Path, line: int, column: str, value: str) -> Path:
    header, body = rows()
    body[line - 2][header.index(column)] = value
    return save(tmp_path / "results.csv", header, body)


def test_the_table_is_that_of_the_published_example() -> None:
    assert markdown(read(SAMPLE)) == GOLDEN.read_text()


def test_the_baseline_is_the_fp32_row_wherever_it_stands_and_whatever_its_size(tmp_path: Path) -> None:
    header, body = rows()
    body[1][header.index("model size, Gb")] = "20.0"  # the int8 model is the largest file now
    result = read(save(tmp_path / "x.csv", header, body[::-1]))
    by_mode = {variant.row.mode: variant for variant in result.variants}
    assert (by_mode["fp32"].error, by_mode["fp32"].rate) == (0.0, 1.0)
    assert by_mode["int8"].rate == pytest.approx(14.235 / 20)


def test_the_file_s_own_metrics_are_computed_anew(tmp_path: Path) -> None:
    path = changed(tmp_path, 3, "average relative error", "0.9")
    assert markdown(read(path)) == GOLDEN.read_text()


def test_further_columns_and_another_first_column_do_no_harm(tmp_path: Path) -> None:
    header, body = rows()
    moved = [[*line[1:], "a note", line[0]] for line in body]
    path = save(tmp_path / "x.csv", [*header[1:], "note", "model"], moved)
    assert markdown(read(path)) == GOLDEN.read_text()
    assert read(path).model == "fp32"


def test_the_table_survives_bars_in_a_mode_and_ranks_with_decimals(tmp_path: Path) -> None:
    header, body = rows()
    body[4][header.index("lora rank")] = "12.5"
    body[3][header.index("mode")] = "int4 + a|b"
    lines = markdown(read(save(tmp_path / "x.csv", header, body))).splitlines()
    assert "| int4 + a\\|b " in "\n".join(lines)
    assert {line.count(" | ") for line in lines if "---" not in line} == {5}
    assert any("|           12.5 |" in line for line in lines)
    assert any("|          128   |" in line for line in lines)


def test_the_picture_shows_the_four_series_and_names_every_point() -> None:
    axes = figure(read(SAMPLE)).axes[0]
    drawn = {line.get_label(): line for line in axes.lines}
    assert list(drawn) == [
        "100% int4, lora correction + scale estimation",
        "100% int4, gptq + scale estimation",
        "100% int4, data-free",
        "mixed-precision, scale estimation",
    ]
    assert [line.get_color() for line in axes.lines] == ["r", "green", "gray", "b"]
    lora = drawn["100% int4, lora correction + scale estimation"]
    assert lora.get_xdata() == pytest.approx([3.8682, 4.5971, 5.8196], abs=1e-3)
    assert lora.get_ydata() == pytest.approx([5.976, 6.488, 7.054], abs=1e-3)
    names = {text.get_text(): text.xyann for text in axes.texts}
    assert names["rank 256"] == (10, -10)
    assert names["gptq"] == (10, 2)
    assert names["data-free"] == (0, -10)
    assert len(names) == 9  # fp32 and int8 are not drawn
    assert axes.get_title() == "Footprint/Accuracy tradeoff for Phi-3-mini-4k-instruct"
    assert axes.get_xlabel() == "Relative error to fp32 model on 3 tasks, %"
    assert axes.get_ylabel() == "Compression rate relative to fp32 model"


def test_a_file_without_mixed_precision_rows_is_drawn(tmp_path: Path) -> None:
    header, body = rows()
    kept = [line for line in body if line[1] != "int4 + scale estimation"]
    axes = figure(read(save(tmp_path / "x.csv", header, kept))).axes[0]
    assert [line.get_label() for line in axes.lines] == [
        "100% int4, lora correction",
        "100% int4, gptq",
        "100% int4, data-free",
    ]


def test_an_empty_name_is_not_written_into_the_picture(tmp_path: Path) -> None:
    axes = figure(read(changed(tmp_path, 4, "plot name", "nan"))).axes[0]
    assert len(axes.texts) == 8


@pytest.mark.parametrize(
    ("column", "value", "words"),
    [
        ("%int4", "40", "'%int4' is '40', which is not a share between 0 and 1"),
        ("%int8", "", "'%int8' is ''"),
        ("model size, Gb", "0", "not a number above 0"),
        ("model size, Gb", "big", "not a number above 0"),
        ("wikitext, word perplexity", "nan", "not a number above 0"),
        ("lambada-openai, acc", "65", "not an accuracy between 0 and 1"),
        ("WWB, similarity", "inf", "not a similarity"),
        ("lora rank", "many", "not a number above 0"),
        ("mode", "", "'mode' is empty"),
    ],
)
def test_a_wrong_value_is_named_with_its_line(tmp_path: Path, column: str, value: str, words: str) -> None:
    path = changed(tmp_path, 5, column, value)
    with pytest.raises(TradeoffError, match="line 5") as caught:
        read(path)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00a", "not a text file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00", "not a text file"),
        (b"a,b\n1,2\n", "The following columns are missing: ['mode', '%int4'"),
        (b'mode,"x\n', "not a CSV file"),
    ],
)
def test_what_is_no_such_file_is_reported_in_one_sentence(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(content)
    with pytest.raises(TradeoffError) as caught:
        read(path)
    assert words in str(caught.value)


def test_structure_errors_are_reported_in_one_sentence(tmp_path: Path) -> None:
    header, body = rows()
    with pytest.raises(TradeoffError, match=r"the following words: \['gptq'\]"):
        read(save(tmp_path / "a.csv", header, [line for line in body if "gptq" not in line[1]]))
    with pytest.raises(TradeoffError, match="2 rows of the mode 'fp32'"):
        read(save(tmp_path / "b.csv", header, [*body, body[0]]))
    with pytest.raises(TradeoffError, match="line 3: 3 fields where the header has 14"):
        read(save(tmp_path / "c.csv", header, [body[0], body[1][:3], *body[2:]]))
    with pytest.raises(TradeoffError, match="more than once"):
        read(save(tmp_path / "d.csv", [*header[:-1], "mode"], body))
    with pytest.raises(TradeoffError, match="entry that includes the following words"):
        read(save(tmp_path / "e.csv", header, []))
    with pytest.raises(TradeoffError, match="cannot be read"):
        read(tmp_path / "none.csv")
    with pytest.raises(TradeoffError, match="cannot be read"):
        read(tmp_path)
    assert issubclass(TradeoffError, RuntimeError)


def test_a_missing_file_is_an_os_error_as_in_the_script_of_nncf(tmp_path: Path) -> None:
    missing = tmp_path / "none.csv"
    with pytest.raises(OSError, match="cannot be read: No such file or directory") as caught:
        tradeoff.visualize(missing, tmp_path)
    assert isinstance(caught.value, TradeoffError)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, str(missing))


def test_both_files_are_written_beside_the_input_or_into_a_new_directory(tmp_path: Path) -> None:
    table, image = write(SAMPLE, tmp_path / "new" / "place")
    assert (table.name, image.name) == ("phi3_asym.md", "phi3_asym.png")
    assert table.read_text() == GOLDEN.read_text()
    data = image.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert (int.from_bytes(data[16:20], "big"), int.from_bytes(data[20:24], "big")) == (640, 480)
    copy = tmp_path / "c.csv"
    copy.write_bytes(SAMPLE.read_bytes())
    assert write(copy, "")[0] == tmp_path / "c.md"
    (tmp_path / "file").write_text("")
    with pytest.raises(TradeoffError, match="cannot be written"):
        write(SAMPLE, tmp_path / "file")


def test_nothing_is_written_when_the_file_is_wrong(tmp_path: Path) -> None:
    with pytest.raises(TradeoffError):
        write(changed(tmp_path, 5, "%int4", "40"), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def write_run(directory: Path, low: int, high: int, certainty: str) -> None:
    directory.mkdir()
    peak = {
        "bytes": low,
        "certainty": certainty,
        "low": low,
        "high": high,
        "at": 1.0,
        "pid": None,
        "operation": None,
    }
    peaks = {"main": peak, "process": peak, "tree": peak, "cgroup": None, "gpu": {}}
    info = {
        "schema": 1,
        "state": "finished",
        "command": ["x"],
        "peaks": peaks,
        "started": {"wall": 1, "monotonic": 1},
    }
    (directory / "run.json").write_text(json.dumps(info))


def test_measured_peaks_of_runs_can_be_the_footprint(tmp_path: Path) -> None:
    header, body = rows()
    gib = 2**30
    for number, line in enumerate(body):
        size = (16 - number) * gib
        line.append(f"runs/r{number}")
        (tmp_path / "runs").mkdir(exist_ok=True)
        write_run(tmp_path / "runs" / f"r{number}", size, size + gib, "interval")
    path = save(tmp_path / "x.csv", [*header, "run"], body)
    result = read(path, measured=True)
    int8 = next(variant for variant in result.variants if variant.row.mode == "int8")
    assert int8.rate == pytest.approx(16 / 15)
    assert (int8.low, int8.high) == (pytest.approx(16 / 16), pytest.approx(17 / 15))
    text = markdown(result)
    assert "| peak<br>memory" in text.splitlines()[0]
    assert "15360.0 to 16384.0 MiB" in text
    assert figure(result).axes[0].get_ylabel() == "Peak memory reduction relative to fp32 model"
    body[3][-1] = "runs/none"
    with pytest.raises(TradeoffError, match="line 5: There is no run"):
        read(save(tmp_path / "y.csv", [*header, "run"], body), measured=True)
    assert tradeoff.RUN == "run"


def test_several_runs_of_a_variant_are_one_footprint_with_their_scatter(tmp_path: Path) -> None:
    header, body = rows()
    mib = 2**20
    for number, line in enumerate(body):
        (tmp_path / f"runs/r{number}").mkdir(parents=True)
        for attempt, size in enumerate((1000, 1040, 1010)):
            write_run(
                tmp_path / f"runs/r{number}/{attempt}",
                (size - 50 * number) * mib,
                (size - 50 * number) * mib,
                "exact",
            )
        line.append(f"runs/r{number}/0; runs/r{number}/2" if number == 1 else f"runs/r{number}")
    result = read(save(tmp_path / "x.csv", [*header, "run"], body), measured=True)
    peaks = {
        number: next(v.row.peak for v in result.variants if v.row.mode == body[number][header.index("mode")])
        for number in (0,)
    }
    assert peaks[0] is not None
    assert (peaks[0].bytes, peaks[0].low, peaks[0].high) == (1010 * mib, 1000 * mib, 1040 * mib)
    int8 = next(variant for variant in result.variants if variant.row.mode == "int8")
    assert int8.low < int8.rate < int8.high
    assert "1000.0 to 1040.0 MiB" in markdown(result)
