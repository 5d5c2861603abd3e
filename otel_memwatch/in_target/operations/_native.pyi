from collections.abc import Callable

from otel_memwatch.in_target.operations.values import Moved, Peak

SHARED: tuple[float, float, float, int, int, int, int, int, int]

class NativeOpening:
    @property
    def id(self) -> int: ...

class Boundaries:
    generation: int
    number: int
    open_count: int
    is_local: int
    def __init__(
        self,
        first_id: int,
        open_again: Callable[[int], None],
        write_rest: Callable[[bytes, int], None],
        quote: Callable[[str], str],
        /,
    ) -> None: ...
    def open(
        self, name: str, trace: str, span: str, parent: str | None, more: bytes, /
    ) -> NativeOpening | None: ...
    def close(self, opening: NativeOpening, error: str | None, more: bytes, /) -> bool | None: ...
    def figures(
        self, opening: NativeOpening, /
    ) -> tuple[Peak, int | None, int | None, Moved | None] | None: ...
    def use(self, *sources: int) -> None: ...
    def use_journal(self, descriptor: int, written: int, /) -> None: ...
    def stop(self) -> None: ...

class Lock:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...

def judge(*evidence: int) -> Peak: ...
def in_main_interpreter() -> bool: ...
