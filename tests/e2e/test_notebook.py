"""A run and a cell in a real Jupyter kernel: what is shown, what is printed, what a second run of the notebook does."""

from __future__ import annotations

import base64
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest

from otel_memwatch.model import Certainty
from otel_memwatch.text import CERTAINTY_WORDS
from tests.support import counters
from tests.support.programs import environment, need

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("ignore")


class Shown:
    """What a cell printed, what it showed by media type, and whether it went well."""

    def __init__(self) -> None:
        self.printed = ""
        self.value: dict[str, Any] = {}
        self.error = ""


class Notebook:
    """Runs cells in a kernel."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def run(self, source: str) -> Shown:
        shown = Shown()

        def hook(message: dict[str, Any]) -> None:
            content = message["content"]
            if message["header"]["msg_type"] == "stream":
                shown.printed += content["text"]
            elif message["header"]["msg_type"] in ("execute_result", "display_data"):
                shown.value.update(content["data"])

        reply = self._client.execute_interactive(source, output_hook=hook, timeout=120)
        shown.error = reply["content"].get("ename", "")
        return shown


@pytest.fixture
def notebook(tmp_path: Path) -> Iterator[Notebook]:
    manager = need("jupyter_client.manager")
    need("ipykernel")
    made, client = manager.start_new_kernel(
        kernel_name="python3",
        cwd=str(tmp_path),
        env=environment(IPYTHONDIR=str(tmp_path / "ipython"), JUPYTER_PLATFORM_DIRS="1"),
    )
    yield Notebook(client)
    client.stop_channels()
    made.shutdown_kernel(now=False)


RECORDED = """
import time
from otel_memwatch import load_run, operation, watch
with watch("memwatch-runs/a", quiet=True, plot=False) as run:
    with operation("Fit <b>"):
        x = bytearray(80 << 20)
        time.sleep(0.5)
    del x
"""


def test_a_run_shows_itself_and_its_picture(notebook: Notebook, tmp_path: Path) -> None:
    assert notebook.run(RECORDED).error == ""
    html = notebook.run("run").value["text/html"]
    assert "Fit &lt;b&gt;" in html
    assert "<b>peak memory " in html
    assert "<script" not in html
    assert "<style" not in html
    (drawing,) = re.findall(r"<svg.*</svg>", html)
    elements = {element.tag.rpartition("}")[2] for element in ET.fromstring(drawing).iter()}
    assert {"path", "text", "circle"} <= elements
    assert not {"script", "style", "foreignObject"} & elements
    assert len(html) < 40_000
    picture = notebook.run("run.plot()").value
    assert base64.b64decode(picture["image/png"]).startswith(b"\x89PNG")
    assert picture["text/plain"].endswith("memwatch-runs/a/memory.png")
    drawing = notebook.run("run.plot('x.svg', dark=True, size=(6.0, 3.0), title='mine')").value[
        "image/svg+xml"
    ]
    assert drawing.startswith("<?xml")
    told = notebook.run("print(run.peak.bytes >> 20, load_run('latest').id, load_run().path.name)").printed
    peak, *names = told.split()
    assert int(peak) > 80
    assert names == ["a", "a"]


def test_a_data_frame_takes_the_samples(notebook: Notebook) -> None:
    need("pandas")
    notebook.run(RECORDED)
    told = notebook.run(
        "import pandas as pd\n"
        "frame, other = pd.DataFrame(run.samples()), run.to_pandas()\n"
        "print(len(frame) == len(other), list(frame.columns[1:]) == list(other.columns), frame['seconds'].is_monotonic_increasing)"
    )
    assert told.printed == "True True True\n"


def test_the_notebook_is_run_again(notebook: Notebook) -> None:
    for name in ("a", "a-2", "a-3"):
        done = notebook.run(RECORDED)
        assert done.error == ""
        assert notebook.run("print(run.path.name)").printed == f"{name}\n"
    told = notebook.run("open('letter', 'w').close(); watch('letter')")
    assert told.error == "UsageError"


def test_the_extension_says_what_it_offers_and_names_the_peak(notebook: Notebook) -> None:
    greeting = notebook.run("%load_ext otel_memwatch").printed
    assert "%%memwatch" in greeting
    assert "Enabling IPython Memory Usage" not in greeting
    measured = notebook.run("%%memwatch\nx = bytearray(70 << 20)\ndel x").value
    certainty = CERTAINTY_WORDS[Certainty(counters.of_process(145 << 20))]
    line = re.compile(
        rf"peak [\d ]+\.\d MiB \({certainty}\), [\d.]+ MiB (more|less) than before, \d+\.\d\d s"
    )
    assert line.search(measured["text/plain"])
    assert line.search(measured["text/html"])
    failed = notebook.run("%%memwatch\ny = bytearray(70 << 20)\n1/0")
    assert failed.error == "ZeroDivisionError"
    assert line.search(failed.printed)
    assert "failed" in failed.printed
    assert "Measure one statement" in notebook.run("%memwatch --help").printed
    assert notebook.run("%%memwatch x\npass").error == "UsageError"
    notebook.run("%memwatch on")
    assert line.search(notebook.run("z = bytearray(30 << 20)").printed)
    assert line.search(notebook.run("1/0").printed)
    notebook.run("%memwatch off")
    assert notebook.run("z = 1").printed == ""


def test_the_older_name_greets_as_it_did(notebook: Notebook) -> None:
    printed = notebook.run("%load_ext otel_memwatch.compat.ipython").printed
    assert printed == "Enabling IPython Memory Usage, use %imu_start to begin, %imu_stop to end\n"
