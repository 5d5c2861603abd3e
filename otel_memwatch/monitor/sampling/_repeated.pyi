from otel_memwatch.monitor.sampling.repeated import RepeatedTimes, WatchedFile

def take_repeated(
    deadline: float,
    interval: float,
    until: float,
    longest_reading: float,
    alarm: int,
    output: int,
    text: bytes,
    files: tuple[WatchedFile, ...],
    most: int,
    /,
) -> RepeatedTimes: ...
