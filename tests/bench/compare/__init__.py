"""How far each tool's figures are from the truth and what it costs: ours beside what people would use instead.

    python -m tests.bench.compare install            each peer into a separate virtual environment, in build/peers
    python -m tests.bench.compare measure [PART ...] truth, start, slowdown, watching, killed; all without a name
    python -m tests.bench.compare table              the Markdown table of the kept results
    python -m tests.bench.compare picture FILE.png   the picture of them

Results are kept in tests/bench/compare/results, one JSON file for each part, raw figures of every repetition included.
"""
