"""`reduce_mem_usage`: smaller, in place, and nothing in the frame changes."""

from __future__ import annotations

import re

import pytest

from tests.support.programs import need

pd = need("pandas")
np = need("numpy")

from otel_memwatch.compat.fastai.dataframe import reduce_mem_usage  # noqa: E402

N = 300


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "int8": [127, -128, 0] * 100,
            "int16": [128, -128, 0] * 100,
            "int32": [2**31 - 1, 0, 0] * 100,
            "int64": [2**31, 0, 0] * 100,
            "uint": np.array([2**63 + 1, 1, 2] * 100, dtype="uint64"),
            "uint8": np.array([255, 1, 2] * 100, dtype="uint64"),
            "nullable": pd.array([1, None, 300] * 100, dtype="Int64"),
            "float": [1.5, 2.25, None] * 100,
            "identifier": [123456789.0, 1.0, None] * 100,
            "huge": [1e300, 1.0, 2.0] * 100,
            "tiny": [1e-300, 0.1, 0.2] * 100,
            "nan": [np.nan] * N,
            "text": ["a long text", "y", "x"] * 100,
            "unique": [f"unique {i}" for i in range(N)],
            "lists": [[1], [2], [3]] * 100,
            "mixed": pd.Series([1, True, 1.0] * 100, dtype=object),
            "zoned": pd.date_range("2020", periods=N, tz="UTC"),
            "seconds": pd.date_range("2020", periods=N).astype("datetime64[s]"),
            "bool": [True, False, True] * 100,
            7: range(N),
            "category": pd.Categorical(["a", "b", "c"] * 100),
        }
    )


def test_every_column_gets_the_smallest_type_that_holds_it(capsys: pytest.CaptureFixture[str]) -> None:
    df = frame()
    before = df.copy(deep=True)
    assert reduce_mem_usage(df) is df
    kinds = {str(name): str(kind) for name, kind in df.dtypes.items()}
    assert {
        name: kind for name, kind in kinds.items() if kind != str(before.dtypes.astype(str).get(name))
    } == {
        "int8": "int8",
        "int16": "int16",
        "int32": "int32",
        "uint8": "uint8",
        "nullable": "Int16",
        "float": "float32",
        "nan": "float32",
        "text": "category",
        "7": "int16",
    }
    for name in before.columns:
        old, new = before[name], df[name]
        same = [
            _missing(a) == _missing(b) and (_missing(a) or a == b)
            for a, b in zip(old.tolist(), new.tolist(), strict=True)
        ]
        assert all(same), name
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"Memory usage of dataframe is \d+\.\d\d MB", lines[0])
    assert lines[1:4] == [
        f"Error {name} Value would be a float64. Disregarding." for name in ("identifier", "huge", "tiny")
    ]
    assert re.fullmatch(r"Memory usage after optimization is: \d+\.\d\d MB", lines[4])
    assert re.fullmatch(r"Decreased by \d+\.\d%", lines[5])
    assert len(lines) == 6


def test_it_never_grows_a_frame_and_handles_empty_and_repeated_names(
    capsys: pytest.CaptureFixture[str],
) -> None:
    df = pd.concat([frame(), frame()[["int8", "text"]]], axis=1)
    before = df.memory_usage(deep=True).sum()
    reduce_mem_usage(df)
    assert df.memory_usage(deep=True).sum() <= before
    assert list(df["int8"].dtypes.astype(str)) == ["int8", "int8"]
    reduce_mem_usage(pd.DataFrame())
    reduce_mem_usage(pd.DataFrame({"a": []}))
    assert "Decreased by 0.0%" in capsys.readouterr().out


def test_a_failure_leaves_the_frame_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    df = pd.DataFrame({"a": [1, 2, 3], "b": [1.0, 2.0, 3.5]})
    kinds = df.dtypes.copy()
    monkeypatch.setattr("otel_memwatch.compat.fastai.dataframe._floats", lambda column: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        reduce_mem_usage(df)
    assert df.dtypes.equals(kinds)


def _missing(value: object) -> bool:
    return not isinstance(value, list) and bool(pd.isna(value))
