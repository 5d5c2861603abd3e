"""`operation`: named parts of the work."""

from otel_memwatch import operation


@operation("Parse", kind="text")
def parse(text: str) -> list[str]:
    return text.split()


with operation("Read", files=3) as reading:
    words = parse("as many words as you like " * 1000)
    reading.set(words=len(words))

figures = reading.figures  # None outside a run
if figures is not None:
    print(figures)
