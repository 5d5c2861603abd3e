"""The rules that record groups: how many series a group has, whatever its size, as promtool evaluates them."""

from __future__ import annotations

import json
import subprocess

from dashboards.records import GROUP_LARGEST, GROUP_MEDIAN, GROUP_RANKS, GROUP_USED, RANK_PEAK
from dashboards.thresholds import RANKS_OF_MANY, RANKS_SHOWN
from tests.support.monitored import RULES
from tests.support.peers import needed

MIB = 1 << 20


def run(name, rank, active=1):
    labels = f'job="train",instance="{name}-{rank}"'
    group = f'memwatch_group_id="{name}",memwatch_group_rank="{rank}",telemetry_distro_name="otel-memwatch"'
    return [
        {"series": f"memwatch_run_active{{{labels}}}", "values": f"{active}x10"},
        {"series": f"memwatch_tree_memory_usage_bytes{{{labels}}}", "values": f"{(100 + rank) * MIB}x10"},
        {"series": f"memwatch_tree_memory_peak_bytes{{{labels}}}", "values": f"{(200 + rank) * MIB}x10"},
        {"series": f"target_info{{{labels},{group}}}", "values": "1x10"},
    ]


def expected(expression, *values):
    samples = [{"labels": labels, "value": value} for labels, value in values]
    return {"expr": expression, "eval_time": "5m", "exp_samples": samples}


def test_a_group_of_any_size_has_few_series(tmp_path):
    series = [
        *(one for rank in range(RANKS_SHOWN + 44) for one in run("large", rank)),
        *(one for rank in range(8) for one in run("small", rank, active=0 if rank == 7 else 1)),
        # A run without a group is in none.
        {"series": 'memwatch_run_active{job="train",instance="alone"}', "values": "1x10"},
        {"series": 'memwatch_tree_memory_peak_bytes{job="train",instance="alone"}', "values": "1x10"},
        {
            "series": 'target_info{job="train",instance="alone",telemetry_distro_name="otel-memwatch"}',
            "values": "1x10",
        },
    ]
    of = '{job="train", memwatch_group_id="small"}'
    tests = [
        expected(
            f"count by (memwatch_group_id) ({RANK_PEAK})",
            ('{memwatch_group_id="large"}', RANKS_OF_MANY),
            ('{memwatch_group_id="small"}', 8),
        ),
        # Those that need most.
        expected(
            f'min ({RANK_PEAK}{{memwatch_group_id="large"}})',
            ("{}", (200 + RANKS_SHOWN + 44 - RANKS_OF_MANY) * MIB),
        ),
        expected(f'{GROUP_RANKS}{{memwatch_group_id="small"}}', (f"{GROUP_RANKS}{of}", 7)),
        expected(
            f'{GROUP_USED}{{memwatch_group_id="small"}}',
            (f"{GROUP_USED}{of}", sum(100 + n for n in range(7)) * MIB),
        ),
        expected(f'{GROUP_LARGEST}{{memwatch_group_id="small"}}', (f"{GROUP_LARGEST}{of}", 207 * MIB)),
        expected(f'{GROUP_MEDIAN}{{memwatch_group_id="small"}}', (f"{GROUP_MEDIAN}{of}", 203.5 * MIB)),
    ]
    document = {
        "rule_files": [str(RULES / "memwatch-records.yml")],
        "evaluation_interval": "30s",
        "tests": [{"interval": "30s", "input_series": series, "promql_expr_test": tests}],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(document))  # which is YAML
    done = subprocess.run([needed("promtool"), "test", "rules", str(file)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
