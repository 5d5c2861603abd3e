"""What a command is called without its arguments."""

from __future__ import annotations

import pytest

from otel_memwatch.record.command_key import command_key, command_label


@pytest.mark.parametrize(
    ("command", "key", "label"),
    [
        ("python train.py --lr 1", "train.py", "train"),
        ("/usr/bin/python3.11 -u -X dev ./jobs/train.py", "train.py", "train"),
        ("python -m pytest -q tests", "pytest", "pytest"),
        ("python -W error -c pass", "python -c pass", "python"),
        ("python", "python", "python"),
        ("git -c a=b log --oneline", "git", "git"),
        ("git log --oneline", "git log", "git log"),
        ("cargo build --release", "cargo build", "cargo build"),
        ("make -j4 all", "make", "make"),
        ("sort data.csv", "sort", "sort"),
        ("nice -n 5 env A=1 python train.py", "train.py", "train"),
        ("timeout -s INT -k 5 1.5h python train.py", "train.py", "train"),
        ("timeout 10s 7z x", "7z", "7z"),
        ("taskset -c 0-3 python train.py", "train.py", "train"),
        ("taskset 0x3 numactl -N 0 --membind=0 python train.py", "train.py", "train"),
        ("env -u PYTHONPATH python train.py", "train.py", "train"),
        ("timeout 5", "timeout", "timeout"),
        ("java -Xmx1g -jar lib/tool.jar run", "java tool.jar", "java tool.jar"),
        ("java -cp . Words", "java Words", "java Words"),
        ("java src/Words.java 3", "java Words.java", "java Words.java"),
        ("node --require x server.js", "server.js", "server"),
        ("bash job.sh 3", "job.sh", "job"),
        ("perl -e sleep", "perl -e sleep", "perl"),
        ("node --eval 1", "node -e 1", "node"),
        ("", "", ""),
    ],
)
def test_program_script_and_subcommand_count(command: str, key: str, label: str) -> None:
    assert (command_key(command.split()), command_label(command.split())) == (key, label)


def test_a_text_is_the_program() -> None:
    text = "sort a.txt | uniq -c"
    assert command_key(["sh", "-c", text]) == f"sh -c {text}"
    assert command_label(["sh", "-c", f"cd x && A=1 {text}"]) == "sort"
    assert command_label(["bash", "-lc", "set -e; exec python3 run.py"]) == "bash"
    assert command_label(["bash", "-c", "python3 run.py"]) == "run"
    assert command_label(["sh", "-c", "for i in 1 2; do sort $i; done"]) == "sort"
    assert command_label(["sh", "-c", "if test -f x; then\n  ! X=1 gcc x.c; fi"]) == "gcc"
    assert command_label(["sh", "-c", "echo failed; exit 3"]) == "sh"
    one, other = (command_key(["sh", "-c", "x | " * 100 + end]) for end in "ab")
    assert one != other
    assert len(one) < 200


def test_a_shell_that_only_starts_a_command_is_not_the_program() -> None:
    assert command_key(["sh", "-c", "python train.py --lr 1"]) == "train.py"
    assert command_key(["sh", "-c", "python train.py > log"]) == "sh -c python train.py > log"


def test_words_that_end_too_early_are_no_trouble() -> None:
    for words in (
        ["python", "-m"],
        ["python", "-c"],
        ["sh", "-c"],
        ["java", "-jar"],
        ["nice", "-n"],
        ["env"],
        ["python", "--"],
    ):
        assert command_key(words)
