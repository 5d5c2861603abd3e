"""The HTTP session of what we push."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import requests


class Session(requests.Session):
    """A session whose own certificates count: requests lets REQUESTS_CA_BUNDLE win over those of the session."""

    def merge_environment_settings(
        self,
        url: str | bytes | None,
        proxies: MutableMapping[str, str] | None,
        stream: bool | None,  # noqa: FBT001 - the base class's signature
        verify: Any,
        cert: Any,
    ) -> Any:
        """Settings of one request: those given, the session's, the environment's."""
        if verify is None and self.verify is not True:
            verify = self.verify
        return super().merge_environment_settings(url, proxies, stream, verify, cert)
