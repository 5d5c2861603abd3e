"""Real peers: Debian's Prometheus and promtool."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request

import pytest


def needed(program):
    """Path of a program that a test needs; without it the test is skipped, under CI it fails."""
    path = shutil.which(program)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{program} is not installed")
        pytest.skip(f"{program} is not installed")
    return path


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    """A Prometheus server on a free loopback port; `config` stands for one that scrapes `targets`."""

    def __init__(self, directory, targets=(), data=None, scheme="http", tls=None, config=None):
        directory.mkdir(exist_ok=True)
        scrape = {
            "job_name": "memwatch",
            "scrape_interval": "500ms",
            "scrape_timeout": "500ms",
            "scheme": scheme,
            "static_configs": [{"targets": list(targets)}],
            **({"tls_config": tls} if tls else {}),
        }
        path = directory / "prometheus.yml"
        path.write_text(json.dumps(config or {"scrape_configs": [scrape] if targets else []}))
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        with (directory / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [
                    needed("prometheus"),
                    f"--config.file={path}",
                    f"--storage.tsdb.path={data or directory / 'data'}",
                    "--storage.tsdb.retention.time=100y",
                    f"--web.listen-address=127.0.0.1:{self.port}",
                ],
                stdout=log,
                stderr=log,
            )
        self.wait(self._ready, 60)
        if targets:
            # It takes its targets up some seconds after its start.
            self.wait(lambda: self.query("up"), 60)

    def _ready(self):
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as response:
            return response.status == 200

    def query(self, expression, **more):
        """Result of an instant query."""
        arguments = urllib.parse.urlencode({"query": expression, **more})
        with urllib.request.urlopen(f"{self.url}/api/v1/query?{arguments}", timeout=10) as response:
            return json.load(response)["data"]["result"]

    def wait(self, condition, seconds=90):
        """Waits until `condition` holds; `seconds` only guard against a hang."""
        until = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError):
                result = condition()
                if result:
                    return result
            if time.monotonic() > until:
                raise AssertionError("Prometheus did not come to it in time")
            time.sleep(0.2)

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
