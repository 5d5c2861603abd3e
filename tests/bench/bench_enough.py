"""Whether advised limits leave real programs their speed, from a cold page cache.

    python -m tests.bench.bench_enough [--only "NAME; ..."] [--tight] [--work DIR]

Each program that is installed here runs three times:

1. under `wrap`, which shows its files
2. again, with these files out of the page cache: advice and speed are based on this run
3. likewise, under the advised limit, or with `--tight` under the minimum

Goal: at least half of the speed. A program that misses it runs twice more in each way, and its best times count, because
the machine may be busy. Waiting for processors that other programs use does not count. Needs a memory hierarchy that it may make groups in.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from otel_memwatch.wings.advice.advice import advise, job_of
from otel_memwatch.wings.advice.bisection import Trial
from otel_memwatch.wings.advice.recommendation import mebibytes, tight
from otel_memwatch.wings.advice.trade import _tried
from otel_memwatch.wings.index.indexed_run import IndexedRun

MAPPED = """
import mmap, random, sys, time
file = open("big", "rb")
map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
total = 0
for _ in range(3_000_000):
    total += map[int(random.random() * len(map))]
"""
SEQUENTIAL = """
import mmap
file = open("big", "rb")
map = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
for _ in range(6):
    for at in range(0, len(map), 1 << 20):
        map[at : at + (1 << 20)].count(b"x")
"""
NUMPY = (
    "import numpy as n; a = n.random.rand(1500, 1500); [a @ a for _ in range(6)]; n.linalg.svd(a[:500, :500])"
)
PANDAS = "import pandas as p, numpy as n; d = p.DataFrame({'k': n.arange(2_000_000) % 999, 'v': n.random.rand(2_000_000)}); d.groupby('k').v.agg(['mean', 'std', 'median']); d.sort_values('v')"
SCIPY = "import scipy.linalg as l, scipy.optimize, scipy.signal, scipy.stats, numpy as n; l.eigh(n.random.rand(700, 700))"
PICTURE = "import matplotlib; matplotlib.use('agg'); import matplotlib.pyplot as p; [(p.figure(figsize=(9, 9)), p.plot(range(9999)), p.savefig('x.png')) for _ in range(5)]"
POOL = "import multiprocessing as m, hashlib\ndef f(n): return hashlib.sha256(bytes(n << 20)).hexdigest()\nif __name__ == '__main__':\n    with m.Pool(3) as p: p.map(f, [20] * 60)"
NODE = "let m = new Map(); for (let i = 0; i < 2e6; i++) m.set('k' + (i % 300000), {i, s: 'x'.repeat(20)}); JSON.stringify([...m]).length"
TORCH = """
import torch
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.randn(4000, 784), torch.randint(0, 10, (4000,)))
model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
steps = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(2):
    for x, y in DataLoader(data, batch_size=64, num_workers=2):
        steps.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        steps.step()
"""
# Reserved huge pages are charged to no memory limit, and PostgreSQL takes them where the machine has some.
POSTGRES = """
rm -rf data; mkdir data; chown 65534 data
exec setpriv --reuid=65534 --clear-groups sh -c '
    export PGHOST=$PWD/data HOME=$PWD/data PATH=$PATH:$(echo /usr/lib/postgresql/*/bin)
    initdb -D data/base -U me -A trust > /dev/null && pg_ctl -D data/base -w -l data/log -o "-k $PWD/data -c listen_addresses= -c huge_pages=off" start > /dev/null
    pgbench -U me -i -s 5 -q postgres 2> /dev/null && pgbench -U me -S -t 5000 -c 2 postgres > /dev/null
    pg_ctl -D data/base -m fast stop > /dev/null'
"""
JAVA = """
import java.util.*;
public class Work { public static void main(String[] a) { Map<String,Integer> m = new HashMap<>();
  for (int i = 0; i < 3000000; i++) m.merge("k" + (i % 200000), i, Integer::sum); System.out.println(m.size()); } }
"""
RUST = 'fn main() { let mut v: Vec<u64> = (0..1000).collect(); v.sort_by_key(|x| x % 7); let s: Vec<String> = v.iter().map(|x| format!("{x:?}")).collect(); println!("{}", s.join(",")); }'
CXX = '#include <regex>\n#include <map>\n#include <iostream>\n#include <algorithm>\nint main() { std::map<std::string, int> m; std::regex r("a(b|c)*d"); std::cout << std::regex_search("abcd", r) << m.size(); }'
SPILL = "import duckdb; c = duckdb.connect('x.duckdb'); c.execute(\"set memory_limit='120MB'; set threads=1\"); c.execute('select count(*) from (select hash(range) h, range r from range(12000000) order by h)').fetchall()"
SQL = "create table t(k integer primary key, v text); with recursive n(i) as (select 1 union all select i+1 from n where i < 400000) insert into t select i, hex(randomblob(60)) from n; create index x on t(v);"
READ = "select count(*) from (select 1 from t a join t b on b.k = (a.k * 7919) % 400000 where a.k < 200000);"


def script(text: str) -> list[str]:
    """A Python program."""
    return [sys.executable, "-c", text]


JOBS: dict[str, list[str]] = {
    "mapped file, random": script(MAPPED),
    "mapped file, in order": script(SEQUENTIAL),
    "copy": ["sh", "-c", "cp big copied && sync copied"],  # else its end only waits for memory
    "scan": ["sh", "-c", "grep -c a big | cat"],  # with /dev/null as output, grep ends at the first match
    "numpy": script(NUMPY),
    "pandas": script(PANDAS),
    "scipy": script(SCIPY),
    "matplotlib": script(PICTURE),
    "pool": script(POOL),
    "python imports": script("import email, http.server, xml.dom.minidom, unittest.mock, asyncio, sqlite3, ssl, numpy"),
    "sqlite, write": ["sqlite3", "new.db", SQL],
    "sqlite, read": ["sqlite3", "old.db", READ],
    "gcc": ["gcc", "-O2", "-c", "many.c", "-o", "many.o"],
    "g++": ["g++", "-O2", "-c", "one.cc", "-o", "one.o"],
    "make": ["make", "-s", "-j2", "a.o", "b.o"],
    "rustc": ["rustc", "-O", "one.rs", "-o", "one"],
    "java": ["java", "-cp", ".", "Work"],
    "javac": ["javac", "-d", "classes", "Work.java"],
    "node": ["node", "-e", NODE],
    "pytorch": ["/usr/bin/python3", "-c", TORCH],  # Debian's python3-torch
    "postgres": ["sh", "-c", POSTGRES],
    "chromium": ["sh", "-c", "chromium --headless --no-sandbox --disable-gpu --screenshot=page.png page.html 2> errors"],
    "git log": ["git", "-C", "repository", "log", "--stat", "--oneline", "-n", "400"],
    "git repack": ["git", "-C", "repository", "repack", "-a", "-d", "-f", "-q", "--threads=1"],
    "ffmpeg": ["ffmpeg", "-y", "-v", "error", "-f", "lavfi", "-i", "testsrc=d=4:s=640x480", "-c:v", "mpeg4", "x.mp4"],
    "ripgrep": ["rg", "-c", "ab.d", "big"],
    "sort": ["sort", "-S", "40M", "-T", ".", "lines", "-o", "sorted"],
    "xz": ["xz", "-3", "-k", "-f", "lines"],
    "zstd": ["zstd", "-q", "-f", "-12", "lines", "-o", "lines.zst"],
    "tar": ["tar", "-czf", "x.tgz", "repository"],
    "perl": ["perl", "-e", "my %h; $h{$_ % 300000} .= 'x' for 1..3000000; print scalar %h"],
    "ruby": ["ruby", "-e", 'h = Hash.new(0); 2_000_000.times { |i| h["k#{i % 200000}"] += i }; puts h.size'],
    "php": ["php", "-r", "$h = []; for ($i = 0; $i < 3000000; $i++) { @$h['k' . ($i % 200000)] += $i; } echo count($h);"],
    "awk": ["awk", "{ n[substr($0, 1, 4)]++ } END { print length(n) }", "lines"],
    "checksum": ["md5sum", "big"],
    "gzip": ["gzip", "-k", "-f", "lines"],
    "bzip2": ["bzip2", "-k", "-f", "lines"],
    "duckdb": script(SPILL),
    "json": script("import json; t = json.dumps([{'k': str(i), 'v': [i] * 5} for i in range(300_000)]); json.loads(t)"),
    "r": ["Rscript", "-e", "m <- matrix(rnorm(1e6), 1000); s <- svd(m[1:400, 1:400]); d <- data.frame(g = 1:1e6 %% 99, v = rnorm(1e6)); aggregate(v ~ g, d, mean)"],
    "openssl": ["openssl", "dgst", "-sha512", "big"],
    "convert": ["convert", "-size", "1500x1500", "plasma:", "-blur", "0x4", "x.png"],
}  # fmt: skip


def prepare(work: Path) -> None:
    """Make the inputs."""
    lots = random.Random(1)
    work.chmod(0o711)  # PostgreSQL refuses to run as root
    (work / "classes").mkdir()
    with (work / "big").open("wb") as file:
        for _ in range(256):
            file.write(lots.randbytes(1 << 20))
    words = [f"{lots.random():.12f} {lots.randrange(10**9)}\n" for _ in range(20000)]
    with (work / "lines").open("w") as lines:
        for _ in range(60):
            lines.writelines(lots.choice(words) for _ in range(20000))
    (work / "many.c").write_text(
        "".join(
            f"int f{n}(int a) {{ int s = 0; for (int i = 0; i < a; i++) s += i % {n + 1}; return s; }}\n" for n in range(3000)
        )
    )  # fmt: skip
    (work / "one.cc").write_text(CXX)
    (work / "one.rs").write_text(RUST)
    (work / "Work.java").write_text(JAVA)
    (work / "page.html").write_text("<h1>" + "<p>text</p>" * 2000)
    (work / "Makefile").write_text("a.o b.o: always\n\tg++ -O1 -c one.cc -o $@\nalways:\n")
    for tool, command in (
        ("sqlite3", ["sqlite3", "old.db", SQL]),
        ("javac", ["javac", "Work.java"]),
        ("git", ["git", "init", "-q", "--bare", "-b", "main", "repository"]),
    ):
        if shutil.which(tool):
            subprocess.run(command, cwd=work, check=False, stdout=subprocess.DEVNULL)
    if (work / "repository").exists():
        subprocess.run(
            ["git", "-C", "repository", "fast-import", "--quiet"], cwd=work, check=True, input=history()
        )
        subprocess.run(JOBS["git repack"], cwd=work, check=True)


def history(commits: int = 2000) -> bytes:
    """Return a repository's commits for `git fast-import`: 1600 files of text, each commit changes some lines of three."""
    lots = random.Random(1)

    def line() -> str:
        return lots.randbytes(lots.randint(5, 50)).hex(" ", 5) + "\n"

    files = [[line() for _ in range(lots.randint(50, 600))] for _ in range(1600)]
    stream = list[str]()
    for number in range(commits):
        who = f"someone <someone@example.org> {1_700_000_000 + number} +0000"
        message = line()
        stream.append(f"commit refs/heads/main\ncommitter {who}\ndata {len(message)}\n{message}")
        for at in lots.sample(range(len(files)), 3) if number else range(len(files)):
            lines = files[at]
            for _ in range(4):
                lines[lots.randrange(len(lines))] = line()
            lines.insert(lots.randrange(len(lines)), line())
            content = "".join(lines)
            stream.append(f"M 644 inline part{at % 40}/file{at}.txt\ndata {len(content)}\n{content}")
    return ("\n".join(stream) + "\n").encode()


def tried(row: IndexedRun, limit: int, files: set[str], before: list[Trial]) -> Trial:
    """Run a program under a limit, after the data of the run before are on disk: it would wait for them."""
    os.sync()
    return _tried(row, limit, files, before)


class Result(NamedTuple):
    """Times of one program."""

    limit: int
    """MiB."""
    alone: Trial
    limited: Trial

    @property
    def speed(self) -> float | None:
        """Share of the speed; `None`: it did not end."""
        alone, limited = self.alone.own_seconds, self.limited.own_seconds
        whole = limited and not self.limited.hung and self.limited.row and self.limited.row.exit_code == 0
        return alone / limited if whole and alone and limited else None


def measure(name: str, work: Path, *, minimum: bool) -> tuple[IndexedRun, Result] | None:
    """Run a program three times; `None`: it fails without a limit."""
    if name == "sqlite, write":
        JOBS[name] = ["sh", "-c", f"rm -f new.db; exec sqlite3 new.db '{SQL}'"]
    row = IndexedRun(
        "", name, "finished", command_json=_json(JOBS[name]), mode="wrap", cwd=str(work), name=name
    )
    files: set[str] = set()
    first = tried(row, 0, files, [])
    again = tried(row, 0, files, [first])
    if again.row is None or again.row.exit_code:
        return None
    (advice,) = advise([again.row._replace(name=name)], by=job_of)
    advice = tight(advice) if minimum else advice
    limit = mebibytes(advice.memory or 0)
    result = Result(limit, again, tried(row, limit, files, [again]))
    for _ in range(2):
        if result.speed is not None and result.speed >= 0.5:
            break
        more = Result(limit, *(tried(row, one, files, [again]) for one in (0, limit)))
        best = min((result.limited, more.limited), key=lambda trial: (trial.hung, trial.seconds or 1e9))
        result = Result(limit, min(result.alone, more.alone, key=lambda trial: trial.seconds or 1e9), best)
    return again.row, result


def _json(argv: list[str]) -> str:
    return json.dumps(argv)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="")
    parser.add_argument("--tight", action="store_true")
    parser.add_argument("--work")
    asked = parser.parse_args()
    names = [name.strip() for name in asked.only.split(";") if name.strip()] or list(JOBS)
    work = Path(asked.work or tempfile.mkdtemp(prefix="memwatch-enough-")).resolve()
    work.mkdir(exist_ok=True)
    if not (work / "big").exists():
        prepare(work)
    os.environ["OTEL_MEMWATCH_RUNS"] = str(work / "runs")
    print(
        f"{'program':24}{'needed':>9}{'limit':>8}{'alone':>9}{'limited':>9}{'speed':>8}{'short':>7}",
        flush=True,
    )
    ended = enough = 0
    for name in names:
        if shutil.which(JOBS[name][0]) is None:
            continue
        found = measure(name, work, minimum=asked.tight)
        if found is None:
            print(f"{name:24}fails without a limit", flush=True)
            continue
        row, result = found
        speed, limited = result.speed, result.limited
        ended += 1
        enough += speed is not None and speed >= 0.5
        share = (
            "-"
            if limited.row is None or limited.row.starved is None
            else f"{100 * limited.row.starved:.0f} %"
        )
        word = "hangs" if limited.hung else "killed" if speed is None else f"{100 * speed:.0f} %"
        print(f"{name:24}{(row.memory or 0) / (1 << 20):9.1f}{result.limit:8}{result.alone.seconds or 0:9.2f}"
              f"{limited.seconds or 0:9.2f}{word:>8}{share:>7}", flush=True)  # fmt: skip
    print(f"{enough} of {ended} programs have at least half of their speed under the advised limit")
    if not asked.work:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
