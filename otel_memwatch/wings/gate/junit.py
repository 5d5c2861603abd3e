"""Verdicts as JUnit XML for Jenkins, GitLab and GitHub's reporters."""

from __future__ import annotations

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple
from otel_memwatch.text import clean

if TYPE_CHECKING:
    from collections.abc import Sequence


class Case(NamedTuple):
    """Verdict as a test case."""

    classname: str
    name: str
    result: str
    """"failure", "skipped", or empty: passed."""
    message: str


def junit(suite: str, cases: Sequence[Case]) -> str:
    """Return the document, with a newline at its end."""
    from xml.etree import ElementTree as ET

    numbers = {kind: str(sum(case.result == kind for case in cases)) for kind in ("failure", "skipped")}
    counts = {
        "tests": str(len(cases)),
        "failures": numbers["failure"],
        "errors": "0",
        "skipped": numbers["skipped"],
    }
    root = ET.Element("testsuites", counts)
    parent = ET.SubElement(root, "testsuite", {"name": suite, **counts, "time": "0"})
    for case in cases:
        element = ET.SubElement(
            parent, "testcase", {"classname": case.classname, "name": clean(case.name), "time": "0"}
        )
        if case.result:
            ET.SubElement(element, case.result, {"message": clean(case.message)})
        else:
            ET.SubElement(element, "system-out").text = clean(case.message)
    ET.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"
