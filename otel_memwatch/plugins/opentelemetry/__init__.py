"""OpenTelemetry instrumentation for programs without a monitor: the sampler runs in the program."""
