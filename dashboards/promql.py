"""Pieces of PromQL. Metrics are named as in the catalogue; how Prometheus calls them is looked up there.

Two labels are relied on: `job` is the service and `instance` the run. Prometheus makes them so of OTLP
(`service.name`, `service.instance.id`); a scrape configuration says them, as those in deploy/ do.
Everything else of who and where a run is (host, version, branch) is joined from `target_info`.
"""

from __future__ import annotations

import re

from otel_memwatch.catalog import METRICS, Instrument, prometheus_names

PLACE = ('cluster=~"$cluster"', 'namespace=~"$namespace"')
"""Where a run runs, as external labels, scrape configurations and collectors of Kubernetes say it; `.*` matches none too."""

DASHBOARD = (*PLACE, 'job=~"$service"', 'instance=~"$run"')
"""What every query of a dashboard is limited to."""

FLEET = (*PLACE, 'job=~"$service"')
"""What queries over many runs are limited to: among ten thousand runs nobody chooses by their names."""

EVERYTHING: tuple[str, ...] = ()
"""Rules look at all runs."""

OURS = 'telemetry_distro_name="otel-memwatch"'
"""`target_info` is there for every program that uses OpenTelemetry."""

RUN = "cluster, namespace, job, instance"
"""Labels that are one run: equal names in two clusters are two, and alerts carry the namespace to route by."""

JOB = "cluster, namespace, job"
"""Labels that are one service."""


def series(
    metric: str, *matchers: str, scope: tuple[str, ...] = DASHBOARD, part: str = "", window: str = ""
) -> str:
    """Selector of a metric, whichever way it reached Prometheus.

    Args:
        metric: name in the catalogue.
        matchers: further label matchers.
        scope: matchers that all queries of the place have.
        part: of a histogram: "bucket", "sum" or "count".
        window: makes it a range, as in "5m".

    """
    row = METRICS[metric]
    if (row.instrument is Instrument.HISTOGRAM) != bool(part):
        raise ValueError(f"{metric}: a histogram, and nothing else, has parts")
    labels = ",".join((*scope, *matchers))
    names = [f"{name}_{part}" if part else name for name in prometheus_names(row)]
    if len(names) == 1:
        return _selector(names[0], labels, window)
    if window:
        # A range has to be one selector. Gauges of unit 1 have one name or the other, by the way that they came.
        return _selector("", ",".join(filter(None, (f'__name__=~"{"|".join(names)}"', labels))), window)
    return "(" + " or ".join(_selector(name, labels, "") for name in names) + ")"


def _selector(name: str, labels: str, window: str) -> str:
    return name + (f"{{{labels}}}" if labels else "") + (f"[{window}]" if window else "")


def per_run(metric: str, *matchers: str, scope: tuple[str, ...] = DASHBOARD, how: str = "max") -> str:
    """One value for each run."""
    return f"{how} by ({RUN}) ({series(metric, *matchers, scope=scope)})"


def last(metric: str, *matchers: str, scope: tuple[str, ...] = DASHBOARD, window: str = "$__range") -> str:
    """The last value within a time, as a rule the dashboard's: runs that have ended are in it."""
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
    """Selector of a series that a rule records for each service."""
    return _selector(name, ",".join((*FLEET, *matchers)), window)


def rate(metric: str, *matchers: str, by: str = "") -> str:
    """Growth per second of a counter, summed."""
    inner = f"rate({series(metric, *matchers, window='$__rate_interval')})"
    return f"sum by ({by}) ({inner})" if by else f"sum ({inner})"


def quantile(q: float, metric: str, *matchers: str, by: str) -> str:
    """A quantile of a histogram over all that the runs which report at a time have done until then.

    Not of a rate: most operations of a job happen once, and a counter that begins at 1 never grows.
    """
    return f"histogram_quantile({q:g}, {so_far(metric, *matchers, by=f'le, {by}')})"


def so_far(metric: str, *matchers: str, by: str) -> str:
    """Buckets of a histogram, filled with all that the runs which report at a time have done until then."""
    return f"sum by ({by}) ({series(metric, *matchers, part='bucket')})"


def with_info(
    expression: str,
    *labels: str,
    scope: tuple[str, ...] = DASHBOARD,
    matchers: tuple[str, ...] = (),
    window: str = "",
) -> str:
    """Joins labels of `target_info` to an expression that has one series for each run, or several.

    A run without that attribute keeps its series, without the label; one whose `target_info` does not match is left out.
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
        rate_interval: what rates are computed over, as in "2m".
        chosen: values of variables by their names; of the others everything is chosen, and a price is 1.

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
