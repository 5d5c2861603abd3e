"""Writes the hashes of the page's scripts and styles into `reports/html`, after one of them has changed.

python -m tests.page.hashes
"""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from otel_memwatch.reports import html


def main() -> None:
    module = Path(html.__file__)
    text = module.read_text()
    for name in html.HASHES:
        data = module.with_name("assets").joinpath(name).read_bytes()
        digest = base64.b64encode(hashlib.sha256(data).digest()).decode()
        text = re.sub(rf'("{re.escape(name)}": )"[^"]*"', rf'\1"{digest}"', text)
    module.write_text(text)


if __name__ == "__main__":
    main()
