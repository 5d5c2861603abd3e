"""Page of a run: one HTML file that works offline, under a content security policy.

The static page has all words and figures, and the memory curve as SVG. It serves CI servers that forbid scripts, paper and
screen readers. Scripts replace the picture with charts and make tables sortable.

Pages differ only in text and data. The policy allows the package's scripts and styles by hash, so no recorded name can
run as a script.
"""

from __future__ import annotations

from pathlib import Path

from otel_memwatch.reports.html.body import body, program
from otel_memwatch.reports.html.data import page_data
from otel_memwatch.reports.pages.markup import escaped
from otel_memwatch.runtime import strict_json
from otel_memwatch.runtime.typed import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from otel_memwatch.reports import Options
    from otel_memwatch.run import RecordedRun

_ASSETS = Path(__file__).with_name("assets")

STYLES = ("uPlot.min.css", "page.css")
SCRIPTS = ("uPlot.iife.min.js", "page.js")

HASHES = {
    "uPlot.min.css": "32MMao1vjur/JktQ9zzlsRT2Rv/ZoLt08EmwoAE1+gQ=",
    "page.css": "UiYv2o1IzJ0bg1YDlK6zsksH1d45ZeSXBf9cSWG9yj8=",
    "uPlot.iife.min.js": "GcjUxq2Ikpp59K5J1vcWFWbf0Lo9FcxJXpdPeH63jx8=",
    "page.js": "pY/PwpXaVPocOndHdIrNHc5grr43YnCbeltdBQAaQtc=",
}
"""SHA-256 of each file in `assets` for the policy; `python -m tests.page.hashes` updates them."""


def render(run: RecordedRun, out: BinaryIO, options: Options) -> None:  # noqa: ARG001 - every report is called alike
    """Write the page as UTF-8."""
    data = page_data(run)
    # Without characters of markup, JSON cannot end its element or begin a comment.
    inert = strict_json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    for character in "<>&":
        inert = inert.replace(character, f"\\u{ord(character):04x}")
    # The policy loads nothing and accepts only the package's scripts and styles. It is in the page because `file:` URLs
    # have no response headers.
    scripts = " ".join(f"'sha256-{HASHES[name]}'" for name in SCRIPTS)
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
        f"<title>{escaped(program(run))} - otel-memwatch</title>\n",
        f"<!-- The charts are drawn by uPlot.\n{_asset('uPlot.LICENSE')}-->\n",
        *(f"<style>{_asset(name)}</style>\n" for name in STYLES),
        "</head>\n<body>\n",
        body(run, data),
        f'<script type="application/json" id="data">{inert}</script>\n',
        *(f"<script>{_asset(name)}</script>\n" for name in SCRIPTS),
        "</body>\n</html>\n",
    ]
    # File names may contain bytes that are not valid UTF-8.
    out.write("".join(parts).encode("utf-8", "backslashreplace"))


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")
