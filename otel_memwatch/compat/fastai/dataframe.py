"""Smaller columns for a DataFrame with the same values."""

from __future__ import annotations

from typing import Any

_INTEGERS = (8, 16, 32)


def reduce_mem_usage(df: Any) -> Any:
    """Store each column of the pandas DataFrame `df` in place in its smallest type, print the saving, and return `df`.

    Integers become the narrowest of their kind (signed, unsigned, nullable) and keep every value. Floats become
    float32, rounded to 24 bits, unless a whole number among them would change or a value would be lost. Text becomes
    categories if that is smaller. Other columns stay. If a step fails, `df` is unchanged.
    """
    before = _megabytes(df)
    print(f"Memory usage of dataframe is {before:.2f} MB")  # noqa: T201 - this function reports by printing
    smaller: dict[int, Any] = {}
    for index, name in enumerate(df.columns):
        column = df.iloc[:, index]
        kind = str(column.dtype)
        stem = kind.rstrip("0123456789")
        reduced = None
        if stem in {"int", "uint", "Int", "UInt"}:
            reduced = _integers(column, stem, int(kind[len(stem) :]))
        elif kind in {"float64", "Float64"}:
            reduced = _floats(column)
            if reduced is None:
                print(f"Error {name} Value would be a float64. Disregarding.")  # noqa: T201
        elif column.dtype == object or kind in {"str", "string"}:
            reduced = _categories(column)
        if reduced is not None:
            smaller[index] = reduced
    # Change the frame only after all columns are converted.
    for index, reduced in smaller.items():
        df.isetitem(index, reduced)
    after = _megabytes(df)
    print(f"Memory usage after optimization is: {after:.2f} MB")  # noqa: T201
    print(f"Decreased by {100 * (before - after) / before if before else 0:.1f}%")  # noqa: T201
    return df


def _megabytes(df: Any) -> float:
    """Return the size in MB (2**20 bytes), including the objects that columns refer to."""
    return float(df.memory_usage(deep=True).sum()) / 2**20


def _integers(column: Any, stem: str, bits: int) -> Any | None:
    import numpy as np

    present = column.dropna()
    low, high = (int(present.min()), int(present.max())) if len(present) else (0, 0)
    for width in _INTEGERS:
        limits = np.iinfo(f"{stem.lower()}{width}")
        if width < bits and limits.min <= low and high <= limits.max:
            return column.astype(f"{stem}{width}")
    return None


def _floats(column: Any) -> Any | None:
    import numpy as np

    values = column.dropna().to_numpy(dtype="float64")
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        narrow = values.astype("float32").astype("float64")
        whole = values == np.floor(values)
        tiny = np.abs(values) < np.finfo("float32").tiny
        # Whole numbers may be identifiers; an overflow would be infinite, an underflow zero.
        lost = (narrow != values) & (whole | tiny | ~np.isfinite(narrow))
    if lost.any():
        return None
    return column.astype("float32" if str(column.dtype) == "float64" else "Float32")


def _categories(column: Any) -> Any | None:
    present = column.dropna()
    if not len(present):
        return None
    try:
        categories = column.astype("category")
    except TypeError:
        return None  # lists, dictionaries and the like
    # 1, 1.0 and True are one category, which would change the column's values.
    kinds = {type(value) for value in present}
    if len(kinds) > 1:
        return None
    return categories if categories.memory_usage(deep=True) < column.memory_usage(deep=True) else None
