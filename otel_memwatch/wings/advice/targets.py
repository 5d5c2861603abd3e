"""Advice as text for people, and in the formats of Slurm, Kubernetes, Docker, Snakemake and Nextflow."""

from __future__ import annotations

import math

from otel_memwatch.runtime.typed import TYPE_CHECKING
from otel_memwatch.text import clean, count, digits, share, size
from otel_memwatch.wings.advice.inputs import FILES, INPUT
from otel_memwatch.wings.advice.recommendation import (
    MIB,
    difference,
    mebibytes,
    processors,
    request,
    sentence,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from otel_memwatch.wings.advice.recommendation import Advice

_MINUTE = 60.0
_CLASSES = 4
"""Number of requests by size of the input."""


def _time_limit(advice: Advice, form: Callable[[int], str]) -> list[str]:
    """Return a line with the whole minutes of the time limit, at least one; none if no duration is known."""
    return [] if advice.seconds is None else [form(max(1, math.ceil(advice.seconds / _MINUTE)))]


def text(advice: Advice) -> str:
    """Return the advice as text: the request, its certainty, and notes."""
    lines = [f"{clean(advice.job) or 'job'}: {sentence(advice)}"]
    least, full = mebibytes(advice.minimum or 0), mebibytes(advice.full_speed or 0)
    if least < full and not advice.different:
        lines.append(
            f"  sizes        minimum {least} MiB (with less it may be killed), full speed {full} MiB"
        )
    if advice.median is not None and advice.largest is not None:
        median, several = size(advice.median), advice.runs > 1
        # Without an upper bound, 0 is the lower one.
        middle = f"{'median ' if several else ''}{median}, " if advice.median else ""
        most = "without an upper bound" if advice.at_most is None else f"at most {size(advice.at_most)}"
        needed = middle + ("largest " if several else "") + most
        if not several and most == f"at most {median}":
            needed = median
        counted = "" if advice.at_most == advice.largest else f", counted as {size(advice.largest)}"
        lines.append(f"  needed       {needed}{counted} ({count(advice.runs, 'run')})")
    if advice.line is not None:
        line, unit, named = advice.line, float(MIB), "MiB"
        if advice.input_name not in (INPUT, FILES):
            # A slope of 3 bytes for each row reads better for each 1 000 000 rows.
            unit = 1.0
            while line.slope * unit < MIB and unit * 10 <= line.largest:
                unit *= 10
            named = f"{unit:,.0f}".replace(",", " ") if unit > 1 else "one"
        each = f"{size(line.base + line.above)}, and {size(line.slope * unit)} more for each {named}"
        lines.append(f"  grows with   {_feature(advice)}: {each}; this explains {share(line.explained, 1)}")
        lines.append(
            f"               fitted for {_amount(advice, line.smallest)} to {_amount(advice, line.largest)}; beyond that the figure is unreliable"
        )
    lines += [f"  note         {note}" for note in advice.notes]
    return "\n".join(lines)


def _feature(advice: Advice) -> str:
    """Return the name of the input that the memory grows with, as the user wrote it."""
    return (advice.input_name or "").removeprefix("tag.")


def _amount(advice: Advice, amount: float) -> str:
    """Return an amount of the input: a size for bytes of files; else a plain number."""
    if advice.input_name in (INPUT, FILES):
        return size(amount)
    return f"{amount:.0f}" if float(amount).is_integer() else digits(amount, 4)


def slurm(advice: Advice) -> str:
    """Return lines for the head of a batch script. Memory is for a node, because the whole job runs on one."""
    assert advice.memory is not None
    return "\n".join(
        [
            *_comments(advice, "# "),
            f"#SBATCH --mem={mebibytes(advice.memory)}M",
            f"#SBATCH --cpus-per-task={processors(advice)}",
            *_time_limit(advice, lambda whole: f"#SBATCH --time={whole // 60:02d}:{whole % 60:02d}:00"),
        ]
    )


def docker(advice: Advice) -> str:
    """Return the options of `docker run`. They exclude swap: otherwise memory could exceed the limit."""
    assert advice.memory is not None
    memory = f"{mebibytes(advice.memory)}m"
    return "\n".join(
        [*_comments(advice, "# "), f"--memory={memory} --memory-swap={memory} --cpus={processors(advice)}"]
    )


def kubernetes_resources(advice: Advice) -> dict[str, dict[str, str]]:
    """Return the field `resources` of a container: processors are requested, not limited.

    Memory up to the limit is guaranteed. With the minimum as the request, the limit stays at full speed: the node's spare
    memory then holds program files.
    """
    assert advice.memory is not None
    memory, limit = advice.memory, max(advice.memory, advice.full_speed or 0)
    cores = max(0.05, math.ceil((advice.cores or 1.0) * 20) / 20)
    requests = {"memory": f"{mebibytes(memory)}Mi", "cpu": f"{cores * 1000:.0f}m"}
    return {"requests": requests, "limits": {"memory": f"{mebibytes(limit)}Mi"}}


def kubernetes(advice: Advice) -> str:
    """Return the field `resources` of a container, as YAML."""
    resources = kubernetes_resources(advice)
    lines = [*_comments(advice, "# "), "resources:"]
    for kind, values in resources.items():
        lines += [f"  {kind}:", *(f"    {name}: {value}" for name, value in values.items())]
    return "\n".join(lines)


def snakemake(advice: Advice) -> str:
    """Return the directives of a rule. `mem_mb` is in units of 10^6 bytes, and grows with an input that explains it."""
    assert advice.memory is not None
    memory = str(math.ceil(advice.memory / 1e6))
    line = advice.line
    scaled = line is not None and advice.input_name == INPUT
    if line is not None and scaled:
        base, least = math.ceil((line.base + line.above) / 1e6), math.ceil(line.least / 1e6)
        # input.size_mb is in units of 10^6 bytes too, so the slope needs no conversion.
        memory = (
            f"lambda wildcards, input: max({least}, int({base} + {line.slope:.4g} * input.size_mb + 0.999))"
        )
    return "\n".join(
        [
            *_comments(advice, "# ", scaled=scaled),
            f"threads: {processors(advice)}",
            "resources:",
            f"    mem_mb={memory},",
            *_time_limit(advice, lambda whole: f"    runtime={whole},"),
        ]
    )


def nextflow(advice: Advice) -> str:
    """Return a block of `nextflow.config` for the process. "MB" is 2^20 bytes there."""
    import re

    assert advice.memory is not None
    memory = f"{mebibytes(advice.memory)}.MB"
    name = re.sub(r"[^A-Za-z0-9_:*|.-]", "_", advice.job)
    return "\n".join(
        [
            *_comments(advice, "// "),
            "process {",
            f"    withName: '{name}' {{",
            f"        memory = {memory}",
            f"        cpus = {processors(advice)}",
            *_time_limit(advice, lambda whole: f"        time = {whole}.min"),
            "    }",
            "}",
        ]
    )


def _comments(advice: Advice, mark: str, *, scaled: bool = False) -> list[str]:
    """Return the comments of a target; `scaled`: the target itself states how the memory grows with the input."""
    said = [f"{clean(advice.job)}: {sentence(advice)}", *advice.notes]
    if advice.different:  # the target is given a figure all the same
        said[:1] = [f"{clean(advice.job)}: {request(advice)}", difference(advice)]
    if advice.line is not None and not scaled:
        # Targets without functions get requests by size of the input: "87 MiB up to 110, 340 MiB up to 320".
        line = advice.line
        step = (line.largest - line.smallest) / _CLASSES
        ends = [line.smallest + step * number for number in range(1, _CLASSES + 1)]
        if float(line.smallest).is_integer() and float(line.largest).is_integer():
            ends = sorted({float(math.floor(end)) for end in ends})  # no task has the number 2.75
        classes = [f"{mebibytes(line.at(end))} MiB up to {_amount(advice, end)}" for end in ends]
        said.append(f"it grows with {_feature(advice)}: {', '.join(classes)}")
    return [f"{mark}{one}" for one in said]


TARGETS: dict[str, Callable[[Advice], str]] = {
    "text": text,
    "slurm": slurm,
    "kubernetes": kubernetes,
    "docker": docker,
    "snakemake": snakemake,
    "nextflow": nextflow,
}
"""Function that formats the advice, for each target; "json" is one document for all jobs."""
INSIDE = ("slurm", "kubernetes", "docker")
"""Targets with a limit that includes the monitor, if `wrap` runs in the job."""
