"""Page of a run: one HTML file that works offline, under a content security policy.

The static page has all words and figures, and the memory curve as SVG. It serves CI servers that forbid scripts, paper and
screen readers. Scripts replace the picture with charts and make tables sortable.

Pages differ only in text and data. The policy allows the package's scripts and styles by hash, so no recorded name can
run as a script.
"""

from __future__ import annotations

import os

from otel_memwatch.reports.html.body import body, program
from otel_memwatch.reports.html.data import page_data
from otel_memwatch.reports.pages.markup import escaped
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_ASSETS = os.path.join(os.path.dirname(__file__), "assets")

STYLES = ("uPlot.min.css", "page.css")
SCRIPTS = ("uPlot.iife.min.js", "parts.js")
"""Scripts of every page, before the one of the page."""

HASHES = {
    "uPlot.min.css": "32MMao1vjur/JktQ9zzlsRT2Rv/ZoLt08EmwoAE1+gQ=",
    "page.css": "sZjND5Leqf/SUD1AttX0EwiNJAthEc0mRY7Axu3us5A=",
    "uPlot.iife.min.js": "GcjUxq2Ikpp59K5J1vcWFWbf0Lo9FcxJXpdPeH63jx8=",
    "parts.js": "3YZkgrFASmh7QS7nT4i84E2/vUOqeRitNuWYTITK2d8=",
    "runs.js": "mmgn8MqhgTAQex3vCA0kiPALApgUmADzKedeVYPsaYA=",
    "compare.js": "ltHMXntheQh3TgaD2PQnEzkcdV9PYjOWVTAy61ntEQI=",
    "page.js": "H3mkbldyQLn519vfW6Hq2kp5AMW0Vy8sK+TFG58BJhI=",
}
"""SHA-256 of each file in `assets` for the policy; `python -m tests.page.hashes` updates them."""


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the page as UTF-8."""
    data = page_data(run)
    out.write(document(program(run), body(run, data), data, "page.js"))


def document(title: str, content: str, data: Any, script: str) -> bytes:
    """Return a page as UTF-8: HTML in its body, and data for a script of `assets`."""
    # Without characters of markup, JSON cannot end its element or begin a comment.
    inert = strict_json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        inert = inert.replace(character, f"\\u{ord(character):04x}")
    # The policy loads nothing and accepts only the package's scripts and styles. It is in the page because `file:` URLs
    # have no response headers.
    used = (*SCRIPTS, script)
    scripts = " ".join(f"'sha256-{HASHES[name]}'" for name in used)
    styles = " ".join(f"'sha256-{HASHES[name]}'" for name in STYLES)
    policy = (
        f"default-src 'none'; script-src {scripts}; style-src {styles}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    parts = [
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n',
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
        '<meta name="color-scheme" content="light dark">\n<meta name="referrer" content="no-referrer">\n',
        f"<title>{escaped(title)} - otel-memwatch</title>\n",
        f"<!-- The charts are drawn by uPlot.\n{_asset('uPlot.LICENSE')}-->\n",
        *(f"<style>{_asset(name)}</style>\n" for name in STYLES),
        "</head>\n<body>\n",
        content,
        f'<script type="application/json" id="data">{inert}</script>\n',
        *(f"<script>{_asset(name)}</script>\n" for name in used),
        "</body>\n</html>\n",
    ]
    # File names may contain bytes that are not valid UTF-8.
    return "".join(parts).encode("utf-8", "backslashreplace")


def _asset(name: str) -> str:
    with open(f"{_ASSETS}/{name}", encoding="utf-8") as file:
        return file.read()
