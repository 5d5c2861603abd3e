"""Twenty real jobs whose runs the advice is judged by: compilers, training, sorts, pools, pipelines.

Each is a shell command that runs in a separate directory, in which `prepare` has put its input. Jobs of threads and of
processes beside each other are among them, since only there do peaks differ much from run to run.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

PACKAGE = Path(__file__).resolve().parents[3] / "otel_memwatch"


class Job(NamedTuple):
    """One job; `{python}` in its command is this interpreter, `{input}` the number that varies, where one does."""

    name: str
    kind: str
    command: str
    inputs: tuple[int, ...] = ()
    """Values of the input that its memory depends on, one drawn for each run; none: every run has the same."""


_TRAINING = """
import numpy as np
rng = np.random.default_rng()
x, y = rng.random((20000, 256), dtype=np.float32), rng.random((20000, 1), dtype=np.float32)
w1, w2 = rng.random((256, 512), dtype=np.float32), rng.random((512, 1), dtype=np.float32)
for epoch in range(4):
    for i in range(0, 20000, 4000):
        h = np.tanh(x[i:i + 4000] @ w1)
        e = h @ w2 - y[i:i + 4000]
        w2 -= 1e-6 * h.T @ e
        w1 -= 1e-6 * x[i:i + 4000].T @ ((e @ w2.T) * (1 - h * h))
"""
_POOL = """
import multiprocessing, random
def work(n):
    rows = [random.random() for _ in range(n)]
    return sum(sorted(rows))
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(work, [random.randrange(100_000, 500_000) for _ in range(24)], chunksize=1)
"""
_THREADS = """
import concurrent.futures, json
text = open("data.json").read()
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    list(pool.map(lambda _: len(json.loads(text)), range(16)))
"""
_GROUPS = """
import pandas as pd
frame = pd.read_csv("data.csv")
frame.groupby("key").agg(["mean", "std"]).to_csv("out.csv")
"""
_ARROW = """
import pyarrow.csv, pyarrow.parquet
table = pyarrow.csv.read_csv("data.csv").sort_by("value")
pyarrow.parquet.write_table(table, "out.parquet")
"""
_SCALED = """
import sys
import numpy as np
rows = np.random.default_rng().random((int(sys.argv[1]) * 1000, 64))
np.linalg.svd(rows.T @ rows)
np.sort(rows, axis=0)
"""
_NODE = """
const rows = []
for (let i = 0; i < 600000; i++) rows.push({ id: i, name: 'n' + i, value: Math.random() })
rows.sort((a, b) => a.value - b.value)
require('fs').writeFileSync('out.json', JSON.stringify(rows))
"""
_JAVA = """
import java.util.*;
class Words {
  public static void main(String[] a) {
    Map<String, Integer> counts = new HashMap<>();
    Random random = new Random();
    for (int i = 0; i < 3000000; i++) counts.merge("w" + random.nextInt(200000), 1, Integer::sum);
    System.out.println(counts.size());
  }
}
"""
_CXX = """
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <random>
#include <regex>
#include <string>
#include <vector>
template <int N> struct Fold { static int of(const std::map<int, std::string>& m) {
  std::regex r("a+b*" + std::to_string(N)); int n = 0;
  for (auto& [k, v] : m) n += std::regex_search(v, r) + Fold<N - 1>::of({}); return n; } };
template <> struct Fold<0> { static int of(const std::map<int, std::string>&) { return 0; } };
int run%d() { return Fold<%d>::of({{1, "ab"}}); }
"""
_RUST = """
use std::collections::{BTreeMap, HashMap};
#[derive(Clone, Debug, PartialEq, PartialOrd)]
enum Tree { Leaf(f64), Node(Vec<Tree>), Map(BTreeMap<String, Tree>) }
fn depth(t: &Tree) -> usize { match t { Tree::Leaf(_) => 1, Tree::Node(v) => 1 + v.iter().map(depth).max().unwrap_or(0),
  Tree::Map(m) => 1 + m.values().map(depth).max().unwrap_or(0) } }
fn main() {
  let mut counts: HashMap<String, Vec<Tree>> = HashMap::new();
  for i in 0..1000 { counts.entry(format!("{:03}", i % 7)).or_default().push(Tree::Node(vec![Tree::Leaf(i as f64)])); }
  let mut all: Vec<_> = counts.into_iter().collect();
  all.sort_by(|a, b| a.partial_cmp(b).unwrap());
  println!("{:?} {}", all.len(), all.iter().map(|(_, v)| v.iter().map(depth).sum::<usize>()).sum::<usize>());
}
"""

JOBS: tuple[Job, ...] = (
    Job("c++", "compiler", "g++ -O2 -c one.cc -o one.o"),
    Job("make -j4", "compilers", "make -s -B -j4"),
    Job("rustc", "compiler", "rustc -O main.rs"),
    Job("javac", "compiler", "javac -d classes Words.java"),
    Job("java", "garbage collector", "java -Xmx256m -cp . Words"),
    Job("node", "garbage collector", "node rows.js"),
    Job("mypy", "checker", "{python} -m mypy --no-incremental --cache-dir=/dev/null --follow-imports=skip package/runs package/record > types.txt || true"),
    Job("ruff", "threads", "{python} -m ruff check --no-cache --exit-zero -q package"),
    Job("training", "training on CPU", "{python} training.py"),
    Job("fork pool", "pool", "{python} pool.py"),
    Job("thread pool", "threads", "{python} threads.py"),
    Job("json", "one thread", '{python} -c "import json; json.load(open(\'data.json\'))"'),
    Job("pandas", "one thread", "{python} groups.py"),
    Job("pyarrow", "threads", "{python} arrow.py"),
    Job("sort", "sort", "sort --parallel=2 -S 64M data.csv > sorted.csv"),
    Job("sqlite", "sort", 'sqlite3 :memory: ".import --csv data.csv t" "select count(*) from (select * from t order by value)"'),
    Job("pipeline", "pipeline", "awk -F, '{print $1}' data.csv | sort | uniq -c | sort -rn | head -20"),
    Job("xz", "compression", "xz -1 -T2 -k -c data.csv > data.csv.xz"),
    Job("git", "short", "git -C repository log --stat --oneline > log.txt"),
    Job("svd", "varying input", "{python} scaled.py {input}", (40, 80, 120, 160, 200, 240, 280, 320)),
)  # fmt: skip


def prepare(directory: Path) -> None:
    """Writes what the jobs read into `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    lots = random.Random(1)
    with (directory / "data.csv").open("w") as file:
        file.write("key,value,other\n")
        for _ in range(700_000):
            file.write(f"k{lots.randrange(5000)},{lots.random():.9f},{lots.randrange(10**9)}\n")
    rows = ",".join(f'{{"id":{i},"name":"name {i}","value":{lots.random()}}}' for i in range(60_000))
    (directory / "data.json").write_text(f"[{rows}]")
    texts = {
        "training.py": _TRAINING, "pool.py": _POOL, "threads.py": _THREADS, "groups.py": _GROUPS, "arrow.py": _ARROW,
        "scaled.py": _SCALED, "rows.js": _NODE, "Words.java": _JAVA, "main.rs": _RUST, "one.cc": _CXX % (0, 8),
    }  # fmt: skip
    units = [f"unit{number}" for number in range(4)]
    texts |= {f"{unit}.cc": _CXX % (number, 1 + number) for number, unit in enumerate(units)}
    objects = " ".join(f"{unit}.o" for unit in units)
    texts["Makefile"] = f"all: {objects}\n%.o: %.cc\n\tg++ -O0 -c $< -o $@\n"
    for name, text in texts.items():
        (directory / name).write_text(text)
    if not (directory / "package").exists():
        shutil.copytree(PACKAGE, directory / "package")
        subprocess.run(["javac", "Words.java"], cwd=directory, check=True)
        subprocess.run(
            ["git", "clone", "-q", "--no-hardlinks", str(PACKAGE.parent), "repository"],
            cwd=directory,
            check=True,
        )


def argv(job: Job, value: int | None = None) -> list[str]:
    """The command of a run of `job`, as a shell runs it."""
    command = job.command.replace("{python}", sys.executable).replace("{input}", str(value))
    return ["sh", "-c", command]


def environment() -> dict[str, str]:
    """As the caller's, with as many threads of numerical libraries as there are processors."""
    return {**os.environ, "PATH": f"{os.environ['PATH']}:{Path.home()}/.cargo/bin"}
