"""Words that distinguish processes of one program."""

from __future__ import annotations

import time

import pytest

from otel_memwatch.run.process_names import distinguishing_words

CC1 = ["/usr/libexec/gcc/x/12/cc1plus", "-quiet", "-imultiarch", "x86_64-linux-gnu", "-D_GNU_SOURCE"]


@pytest.mark.parametrize(
    ("argvs", "told"),
    [
        (
            [[*CC1, f"src/a/file{n}.cc", "-dumpbase", f"file{n}.cc", "-o", f"/tmp/x{n}.s"] for n in (1, 2)],
            [("cc1plus", "file1.cc"), ("cc1plus", "file2.cc")],
        ),
        (  # one alone too: what it compiles is what a person asks for
            [["/usr/bin/g++-12", "-O2", "-c", "-o", "x.o", "src/x.cpp"]],
            [("g++-12", "x.cpp")],
        ),
        (
            [["as", "--64", "-o", f"{n}.o", f"/tmp/{n}.s"] for n in "ab"],
            [("as", "a.s"), ("as", "b.s")],
        ),
        (
            [["rustc", "--crate-name", name, "--edition=2021", "src/lib.rs"] for name in ("serde", "syn")],
            [("rustc", "serde"), ("rustc", "syn")],
        ),
        (
            [["/usr/bin/python3", "-u", "train.py"], ["bash", "/x/run.sh", "a"]],
            [("python3", "train.py"), ("bash", "run.sh", "a")],
        ),
        (  # behind flags too: the installed program starts Python so
            [
                ["/v/bin/python3", "-Su", "-B", "/v/bin/tool", "demo"],
                ["python3", "-X", "dev", "-u", "a/b.py"],
                ["python", "-"],
            ],
            [("python3", "tool", "demo"), ("python3", "-X", "dev", "-u", "a/b.py"), ("python", "-")],
        ),
        (
            [["python", "/a/worker.py", "--port", "1", "--rank", str(n), "--out", "x"] for n in (0, 1)],
            [("python", "worker.py", "--rank", "0"), ("python", "worker.py", "--rank", "1")],
        ),
        (
            [["python", "w.py", f"--local-rank={n}", "--lr", "0.1"] for n in (0, 1)],
            [("python", "w.py", "--local-rank=0"), ("python", "w.py", "--local-rank=1")],
        ),
        (  # what they are to do, where it comes first, is part of the name
            [["python", "/bin/git-annex", "get", "--jobs", "2", name] for name in "ab"],
            [("python", "git-annex", "get", "a"), ("python", "git-annex", "get", "b")],
        ),
        (  # the one without a difference keeps its line
            [["python", "w.py", "all"], ["python", "w.py", "all", "child"]],
            [("python", "w.py", "all"), ("python", "w.py", "all", "child")],
        ),
        ([["python", "w.py", "x"]] * 2, [("python", "w.py", "x")] * 2),  # forked: nothing distinguishes them
        (
            [["python", "-m", "a", "1"], ["python", "-m", "a", "2"], ["python", "-m", "b", "1"]],
            [("python", "-m", "a", "1"), ("python", "-m", "a", "2"), ("python", "-m", "b", "1")],
        ),
        (
            [["python", "-c", "import time; time.sleep(9)", "--rank", n] for n in "01"],
            [("python", "--rank", "0"), ("python", "--rank", "1")],
        ),
        ([None, []], [None, None]),
        (
            [["p", "--token", "secret1", "a"], ["p", "--token", "secret2", "b"]],
            [("p", "a"), ("p", "b")],
        ),
    ],
)
def test_distinguishing_words(argvs: list[list[str] | None], told: list[tuple[str, ...] | None]) -> None:
    assert distinguishing_words(argvs) == told


def test_many_words_take_no_time() -> None:
    argv = ["p", *map(str, range(200_000))]
    begin = time.process_time()
    distinguishing_words([argv, [*argv, "x"]])
    assert time.process_time() - begin < 5
