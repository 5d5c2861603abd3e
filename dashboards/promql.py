"""Pieces of PromQL. Metrics are named as in the catalogue; their names in Prometheus are looked up there.

Queries rely on two labels: `job` is the service and `instance` the run. Prometheus creates them from OTLP
(`service.name`, `service.instance.id`); scrape configurations set them, such as those in deploy/.
Other attributes of a run (host, version, branch) are joined from `target_info`.
"""

from __future__ import annotations

import re

from otel_memwatch.catalog import METRICS, Instrument, prometheus_names

PLACE = ('cluster=~"$cluster"', 'namespace=~"$namespace"')
"""Location of a run, from external labels, scrape configurations or Kubernetes collectors; `.*` also matches none."""

DASHBOARD = (*PLACE, 'job=~"$service"', 'instance=~"$run"')
"""Matchers of every query of a dashboard."""

FLEET = (*PLACE, 'job=~"$service"')
"""Matchers of queries over many runs, without the run: ten thousand names are no useful choice."""

EVERYTHING: tuple[str, ...] = ()
"""Rules look at all runs."""

OURS = 'telemetry_distro_name="otel-memwatch"'
"""Matcher of our runs: every program with OpenTelemetry has a `target_info`."""

RUN = "cluster, namespace, job, instance"
"""Labels that identify one run. Equal names in two clusters are two runs; alerts route by the namespace."""

JOB = "cluster, namespace, job"
"""Labels that identify one service."""


def series(
    metric: str, *matchers: str, scope: tuple[str, ...] = DASHBOARD, part: str = "", window: str = ""
) -> str:
    """Selector of a metric, for all paths to Prometheus.

    Args:
        metric: name in the catalogue.
        matchers: further label matchers.
        scope: matchers of all queries in this place.
        part: of a histogram: "bucket", "sum" or "count".
        window: range of the selector, as in "5m".

    """
    row = METRICS[metric]
    if (row.instrument is Instrument.HISTOGRAM) != bool(part):
        raise ValueError(f"{metric}: a histogram, and nothing else, has parts")
    labels = ",".join((*scope, *matchers))
    names = [f"{name}_{part}" if part else name for name in prometheus_names(row)]
    if len(names) == 1:
        return _selector(names[0], labels, window)
    if window:
        # A range must be one selector. Gauges of unit 1 have two names, depending on their path.
        return _selector("", ",".join(filter(None, (f'__name__=~"{"|".join(names)}"', labels))), window)
    return "(" + " or ".join(_selector(name, labels, "") for name in names) + ")"


def _selector(name: str, labels: str, window: str) -> str:
    return name + (f"{{{labels}}}" if labels else "") + (f"[{window}]" if window else "")


def per_run(metric: str, *matchers: str, scope: tuple[str, ...] = DASHBOARD, how: str = "max") -> str:
    """One value for each run."""
    return f"{how} by ({RUN}) ({series(metric, *matchers, scope=scope)})"


def last(metric: str, *matchers: str, scope: tuple[str, ...] = DASHBOARD, window: str = "$__range") -> str:
    """The last value in a time range, usually the dashboard's; includes ended runs."""
    return f"last_over_time({series(metric, *matchers, scope=scope, window=window)})"


def last_per_run(
    metric: str,
    *matchers: str,
    how: str = "max",
    scope: tuple[str, ...] = DASHBOARD,
    window: str = "$__range",
) -> str:
    """`last`, one value for each run."""
    return f"{how} by ({RUN}) ({last(metric, *matchers, scope=scope, window=window)})"


def recorded(name: str, *matchers: str, window: str = "") -> str:
    """Selector of a recorded series with one value per service."""
    return _selector(name, ",".join((*FLEET, *matchers)), window)


def rate(metric: str, *matchers: str, by: str = "") -> str:
    """Growth per second of a counter, summed."""
    inner = f"rate({series(metric, *matchers, window='$__rate_interval')})"
    return f"sum by ({by}) ({inner})" if by else f"sum ({inner})"


def quantile(q: float, metric: str, *matchers: str, by: str) -> str:
    """A quantile of a histogram over everything that the reporting runs have done so far.

    Not of a rate: most operations of a job happen once, and a counter that starts at 1 never grows.
    """
    return f"histogram_quantile({q:g}, {so_far(metric, *matchers, by=f'le, {by}')})"


def so_far(metric: str, *matchers: str, by: str) -> str:
    """Buckets of a histogram with everything that the reporting runs have done so far."""
    return f"sum by ({by}) ({series(metric, *matchers, part='bucket')})"


def with_info(
    expression: str,
    *labels: str,
    scope: tuple[str, ...] = DASHBOARD,
    matchers: tuple[str, ...] = (),
    window: str = "",
) -> str:
    """Join labels of `target_info` to an expression with one or several series per run.

    A run without the attribute keeps its series, without the label. A run without a matching `target_info` is left out.
    """
    added = ", ".join(labels)
    selector = _selector("target_info", ",".join((*scope, OURS, *matchers)), window)
    info = f"last_over_time({selector})" if window else selector
    return f"{expression} * on ({RUN}) group_left ({added}) max by ({RUN}, {added}) ({info})"


def filled(expression: str, within: str, rate_interval: str, **chosen: str) -> str:
    """The expression as Grafana sends it.

    Args:
        expression: with Grafana's variables.
        within: the dashboard's time, as in "2h".
        rate_interval: range of rates, as in "2m".
        chosen: values of variables by name; the others select everything, and a price is 1.

    Raises `KeyError` for a variable that no dashboard has.

    """
    everything = dict.fromkeys(("service", "run", "host", "gpu", "operation", "branch"), ".+")
    values = everything | {"cluster": ".*", "namespace": ".*", "main": "main|master", "price": "1"} | chosen
    values |= {"__range": within, "__rate_interval": rate_interval}
    return re.sub(r"\$(\w+)", lambda found: values[found[1]], expression)


def names_in(expression: str) -> list[str]:
    """Names in the catalogue of the metrics that an expression uses, in the order of the catalogue."""
    words = set(re.findall(r"[A-Za-z_:][\w:]*", expression))
    found = []
    for row in METRICS.values():
        names = {
            f"{name}{part}" for name in prometheus_names(row) for part in ("", "_bucket", "_sum", "_count")
        }
        if names & words:
            found.append(row.name)
    return found
