"""Programs with OpenTelemetry tracing of their own: their spans become operations, our operations become their spans."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from otel_memwatch.catalog import SPAN_ATTRIBUTES
from tests.support import counters
from tests.support.marked import MIB, PROGRAMS, ROOT, Program, run, succeed
from tests.support.wrapped import PROGRAM, environment

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" and "CI" not in os.environ, reason="watermarks that can be reset are Linux's"
)


class TestOperationsBecomeSpans:
    @pytest.fixture
    def program(self, tmp_path: Path) -> Program:
        program = run(PROGRAMS / "operations_among_spans.py", tmp_path)
        assert program.code == 0, program.err
        assert not program.err
        return program

    def test_with_the_same_ids_and_parents(self, program: Program) -> None:
        spans = {span["name"]: span for span in json.loads(program.out)}
        recorded = {found.name: found.opening for found in program.operations}
        assert set(recorded) == {"ours", "generator", "phase", "failing", "afterwards"}
        for name, opening in recorded.items():
            assert spans[name]["span"] == opening["span"]
            assert spans[name]["parent"] == opening["parent"]
            assert opening["exported"] is True
        by_id = {span["span"]: name for name, span in spans.items()}
        assert {name: by_id.get(span["parent"]) for name, span in spans.items()} == {
            "theirs": None,
            "ours": "theirs",
            "inner theirs": "ours",
            "generator": None,
            "in generator": "generator",
            "beside": None,
            "phase": None,
            "in phase": "phase",
            "failing": None,
            "afterwards": None,
        }

    def test_with_the_figures_as_attributes(self, program: Program) -> None:
        spans = {span["name"]: span for span in json.loads(program.out)}
        closing = program.one("ours").closing
        attributes = spans["ours"]["attributes"]
        assert attributes["size"] == 30
        assert attributes["memwatch.memory.peak"] == closing["peak"]
        assert attributes["memwatch.memory.certainty"] == counters.of_process(closing["peak"])
        assert attributes["memwatch.memory.peak"] - attributes["memwatch.memory.start"] >= 29 * MIB
        assert {name for name in attributes if name.startswith("memwatch.")} == set(SPAN_ATTRIBUTES)

    def test_with_their_failure(self, program: Program) -> None:
        spans = {span["name"]: span for span in json.loads(program.out)}
        assert (spans["failing"]["status"], spans["failing"]["events"]) == ("ERROR", ["exception"])
        assert program.one("failing").closing["error"] == "KeyError"


class TestSpansBecomeOperations:
    @pytest.fixture
    def program(self, tmp_path: Path) -> Program:
        program = run(PROGRAMS / "spans_as_operations.py", tmp_path)
        assert program.code == 0, program.err
        return program

    def test_each_once_with_exact_figures(self, program: Program) -> None:
        for name, size in (("outer", 70), ("inner", 20), ("ours", 5), ("child", 15)):
            found = program.one(name)
            assert found.closing["certainty"] == counters.of_process(found.closing["peak"])
            assert found.grown == pytest.approx(size, abs=1)
        assert len(program.named("many")) == 400
        assert all(found.closing for found in program.operations)

    def test_with_ids_attributes_and_errors(self, program: Program) -> None:
        spans = {span["name"]: span for span in json.loads(program.out)}
        for name in ("outer", "inner", "ours", "failing"):
            assert program.one(name).opening["span"] == spans[name]["span"]
            assert program.one(name).opening["parent"] == spans[name]["parent"]
        assert program.one("inner").closing["attributes"] == {"rows": 3}
        assert program.one("failing").closing["error"] == "ValueError"

    def test_the_programs_exporter_gets_the_figures(self, program: Program) -> None:
        [inner] = [span for span in json.loads(program.out) if span["name"] == "inner"]
        assert inner["attributes"]["memwatch.memory.peak"] == program.one("inner").closing["peak"]
        assert inner["attributes"]["rows"] == 3

    def test_a_span_ended_past_us_is_closed_all_the_same(self, program: Program) -> None:
        assert program.one("ended past us").closing["status"] == "ok"
        assert "Calling end() on an ended span" in program.err


def test_the_processor_is_nothing_outside_a_run(tmp_path: Path) -> None:
    program = run(PROGRAMS / "span_outside_a_run.py", tmp_path, OTEL_MEMWATCH_RUN_DIR="")
    assert (program.code, program.err) == (0, "")
    assert program.operations == []


def test_a_provider_that_does_nothing_is_left_alone(tmp_path: Path) -> None:
    program = succeed(
        """
        from opentelemetry import trace
        with operation("before a provider is set"): pass
        trace.set_tracer_provider(trace.NoOpTracerProvider())
        with operation("with one that does nothing"): pass
        """,
        tmp_path,
    )
    assert all("exported" not in found.opening for found in program.operations)
    assert len(program.operations) == 2


def instrument() -> str:
    """The program `opentelemetry-instrument` of the interpreter that runs the tests."""
    found = shutil.which("opentelemetry-instrument", path=os.path.dirname(sys.executable))
    if found is None and "CI" not in os.environ:
        pytest.skip("opentelemetry-distro is not installed")
    assert found is not None
    return found


def wrapped_service(tmp_path: Path, **variables: str) -> Path:
    pytest.importorskip("flask") if "CI" not in os.environ else None
    script = PROGRAMS / "service.py"
    out = tmp_path / "run"
    done = subprocess.run(
        [*PROGRAM, "wrap", "--out", out, "--no-plot", "--quiet", "--", instrument(), sys.executable, script],
        env=environment(
            **{
                "OTEL_TRACES_EXPORTER": "none",
                "OTEL_METRICS_EXPORTER": "none",
                "OTEL_LOGS_EXPORTER": "none",
                "PYTHONPATH": str(ROOT),
            }
            | variables
        ),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return out


def test_a_flask_service_that_knows_nothing_of_us(tmp_path: Path) -> None:
    out = wrapped_service(tmp_path)
    report = subprocess.run(
        [*PROGRAM, "report", out, "--json"], env=environment(), capture_output=True, text=True, check=True
    )
    document = json.loads(report.stdout)
    requests = [found for found in document["operations"] if found["name"].startswith("GET /work")]
    assert len(requests) == 3
    assert [round((found["peak"]["bytes"] - requests[0]["peak"]["bytes"]) / MIB) for found in requests] == [
        0,
        pytest.approx(70, abs=1),
        pytest.approx(-15, abs=1),
    ]
    for found in requests:
        assert found["peak"]["certainty"] == counters.of_process(found["peak"]["bytes"])
    (failed,) = [found for found in document["operations"] if "/fail" in found["name"]]
    assert failed["status"] == "error"


def test_it_can_be_switched_off_as_any_instrumentation(tmp_path: Path) -> None:
    out = wrapped_service(tmp_path, OTEL_PYTHON_DISABLED_INSTRUMENTATIONS="memwatch")
    assert list(out.glob("operations-*.jsonl")) == []


ROOT_AND_BESIDE = """
    import threading
    from opentelemetry import trace
    tracer = trace.get_tracer("program")
    provider = trace.get_tracer_provider()
    def span(name):
        with tracer.start_as_current_span(name) as made:
            flags.append(made.get_span_context().trace_flags.sampled)
            links = [link.context.span_id for link in getattr(made, "links", ())]
            print(name, *(f"{link:016x}" for link in links))
    flags = []
    for number in range(20):
        span("root")
    beside = threading.Thread(target=span, args=("beside",))
    beside.start()
    beside.join()
    print("sampled", *map(int, flags[:20]))
"""


def instrumented(tmp_path: Path, **variables: str) -> tuple[Path, list[list[str]]]:
    """The run of twenty spans and one in a separate thread under opentelemetry-instrument, and what they said."""
    script, out = tmp_path / "program.py", tmp_path / "run"
    script.write_text(textwrap.dedent(ROOT_AND_BESIDE))
    done = subprocess.run(
        [*PROGRAM, "wrap", "--out", out, "--no-plot", "--quiet", "--", instrument(), sys.executable, script],
        env=environment(OTEL_TRACES_EXPORTER="none", OTEL_METRICS_EXPORTER="none", PYTHONPATH=str(ROOT))
        | variables,
        check=True,
        timeout=120,
        capture_output=True,
        text=True,
    )
    return out, [line.split() for line in done.stdout.splitlines()]


def test_root_spans_continue_the_trace_of_the_run(tmp_path: Path) -> None:
    out, said = instrumented(tmp_path)
    trace = json.loads((out / "run.json").read_text())["trace"]
    program = Program(subprocess.CompletedProcess([], 0), out)
    root, (beside,) = program.named("root")[0], program.named("beside")
    assert root.opening["trace"] == trace["trace_id"]
    assert root.opening["parent"] == trace["span_id"]
    assert beside.opening["trace"] != trace["trace_id"]
    assert ["root"] in said
    assert ["beside", trace["span_id"]] in said


@pytest.mark.parametrize("sampler", ["parentbased_always_off", "parentbased_traceidratio", "always_off"])
def test_what_the_programs_sampler_leaves_out_stays_left_out(tmp_path: Path, sampler: str) -> None:
    _, said = instrumented(tmp_path, OTEL_TRACES_SAMPLER=sampler, OTEL_TRACES_SAMPLER_ARG="0")
    assert ["sampled", *"0" * 20] in said


def test_a_sampler_that_only_the_program_knows_decides_too(tmp_path: Path) -> None:
    installed = tmp_path / "own_sampler-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: own-sampler\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[opentelemetry_traces_sampler]\nown = own_sampler:made\n")
    (tmp_path / "own_sampler.py").write_text(
        "from opentelemetry.sdk.trace import sampling\n"
        "def made(argument): return sampling.ParentBased(sampling.TraceIdRatioBased(float(argument)))\n"
    )
    own = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "OTEL_TRACES_SAMPLER": "own"}
    (tmp_path / "none").mkdir()
    (tmp_path / "all").mkdir()
    _, said = instrumented(tmp_path / "none", **own, OTEL_TRACES_SAMPLER_ARG="0")
    assert ["sampled", *"0" * 20] in said
    _, said = instrumented(tmp_path / "all", **own, OTEL_TRACES_SAMPLER_ARG="1")
    assert ["sampled", *"1" * 20] in said
