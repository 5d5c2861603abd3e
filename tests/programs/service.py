"""A service that asks itself."""

from __future__ import annotations

import mmap
import threading
import urllib.error
import urllib.request

from flask import Flask
from werkzeug.serving import make_server

app = Flask("service")


@app.route("/work/<int:mib>")
def work(mib):
    memory = mmap.mmap(-1, mib << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for place in range(0, mib << 20, 4096):
        memory[place] = 1
    memory.close()
    return "done"


@app.route("/fail")
def fail():
    raise ValueError("on purpose")


server = make_server("127.0.0.1", 0, app)
thread = threading.Thread(target=server.serve_forever)
thread.start()
for mib in (20, 90, 5):
    assert urllib.request.urlopen(f"http://127.0.0.1:{server.port}/work/{mib}").read() == b"done"
try:
    urllib.request.urlopen(f"http://127.0.0.1:{server.port}/fail")
except urllib.error.HTTPError as error:
    assert error.code == 500
server.shutdown()
thread.join()
