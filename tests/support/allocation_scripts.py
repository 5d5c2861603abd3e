"""Random scripts for workload.c, and what is known of them before they run.

A script is a tuple of steps: a word of workload.c, or `Child`. The count knows the largest process for certain, and,
where children run one after the other, the whole tree.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, cast

from hypothesis import strategies as st

MIB = 1 << 20
Script = tuple["str | Child", ...]


class Child(NamedTuple):
    """A forked child that runs a script and ends; `waits`: its parent waits for it before it goes on."""

    script: Script
    waits: bool

    def words(self) -> Iterator[str]:
        yield "("
        yield from words(self.script)
        yield ")"
        if self.waits:
            yield "w"


def words(script: Script) -> Iterator[str]:
    """The arguments for workload.c."""
    for step in script:
        if isinstance(step, str):
            yield step
        else:
            yield from step.words()


class Count(NamedTuple):
    """What a script needs by its count, in MiB, without the program itself."""

    own: float
    """Largest resident size of the script's main process."""
    process: float
    """Largest resident size of any process."""
    tree: float
    """Most that the tree has at once, every page counted once, where children run one after the other."""
    processes: int


BLOCK = 1.0
"""MiB of workload.c's buffer for files, once a process has written one."""


def count(
    script: Script, inherited: tuple[float, ...] = (), together: float = 0.0, block: float = 0.0
) -> Count:
    """Counts a script.

    Args:
        script: to count.
        inherited: resident sizes of the mappings that its process begins with, oldest first.
        together: MiB that the tree has when it begins.
        block: MiB of the buffer for files that it begins with.

    """
    live = list(inherited)
    added: list[float] = []
    stacks = written = 0.0
    own = process = sum(live) + block
    tree, processes = together, 1
    for step in script:
        if isinstance(step, Child):
            of_child = count(
                step.script,
                tuple(abs(size) if size > 0 else 0.0 for size in live),
                together + sum(added) + written,
                block,
            )
            process, tree = max(process, of_child.process), max(tree, of_child.tree)
            processes += of_child.processes
        elif step[0] in "am":
            # a forked child has its parent's private mappings at once, shared ones only when it touches them
            size = float(step[1:])
            live.append(size if step[0] == "a" else -size)
            added.append(size)
        elif step[0] == "f":
            size = abs(live.pop())
            if added:
                added.pop()
        elif step[0] == "t":
            stacks += int(step[1:]) * 72 / 1024
        elif step[0] == "o":
            block = written = BLOCK
        elif step[0] == "e":
            live.clear()
            added.clear()
            stacks = block = written = 0.0
        own = max(own, sum(abs(size) for size in live) + stacks + block)
        tree = max(tree, together + sum(added) + stacks + written)
    return Count(own, max(process, own), tree, processes)


def sleeps(script: Script) -> int:
    """Milliseconds that it sleeps and burns at most, one child after the other."""
    return sum(
        sleeps(step.script) if isinstance(step, Child) else int(step[1:]) if step[0] in "sb" else 0
        for step in script
    )


SIZES = st.one_of(st.integers(1, 12), st.integers(8, 90))
PAUSES = st.sampled_from([0, 0, 1, 5, 20, 60, 130])


@st.composite
def scripts(
    draw: st.DrawFn, *, in_turn: bool = False, depth: int = 2, mapped: int = 0, files: bool = False
) -> Script:
    """A script; `in_turn`: every child is waited for at once; `mapped`: mappings it begins with; `files`: it writes some."""
    kinds = ["a", "a", "f", "s", "s", "b", "m", *(["("] * 3 if depth else []), *(["o"] if files else [])]
    if in_turn or depth < 2:
        kinds.append("e")  # the outermost process has a referee to remember where children overlap
    steps: list[str | Child] = []
    if not in_turn and draw(st.integers(0, 9)) == 0:
        steps.append("i")
    for _ in range(draw(st.integers(1, 6))):
        kind = draw(st.sampled_from(kinds))
        if kind == "f":
            if mapped == 0:
                continue
            mapped -= 1
            steps.append("f")
        elif kind in "am":
            mapped += 1
            steps.append(f"{kind}{draw(SIZES)}")
        elif kind == "e":
            mapped = 0
            steps.append("e")
        elif kind == "s":
            steps.append(f"s{draw(PAUSES)}")
        elif kind == "b":
            steps.append(f"b{draw(st.integers(1, 30))}")
        elif kind == "o":
            steps.append(f"o{draw(SIZES)}")
        else:
            inner = draw(scripts(in_turn=in_turn, depth=depth - 1, mapped=mapped, files=files))
            steps.append(Child(cast("Script", inner), in_turn or draw(st.integers(0, 3)) == 0))
    if depth == 2 and draw(st.integers(0, 5)) == 0:
        steps.append(f"t{draw(st.integers(1, 40))}")
    if depth < 2 and not in_turn and draw(st.integers(0, 4)) == 0:
        steps.append("k9")
    return tuple(steps)
