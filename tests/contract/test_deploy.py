"""What is in deploy/ is valid by the schemas that can be had, agrees with itself, and its scripts do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from otel_memwatch import __version__
from tests.support.peers import needed

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = sorted(path.name for path in (KUBERNETES / "overlays").iterdir())
CRDS = {"PodMonitor", "PrometheusRule"}
"""Kinds of the Prometheus operator, of which no package has the schemas: they are read below."""


def run(*command, **more):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60, **more)


def load(path):
    return yaml.safe_load(Path(path).read_text())


def load_all(text):
    return [document for document in yaml.safe_load_all(text) if document]


# -- schemas


@pytest.mark.parametrize(
    ("schema", "path", "more"),
    [
        ("compose-spec", "compose/compose.yaml", ()),
        ("github-actions", "github-actions/action.yml", ()),
        ("github-workflows", "github-actions/example.yml", ()),
        ("github-actions", "github-actions/gate/action.yml", ()),
        ("github-workflows", "github-actions/gate/example.yml", ()),
        ("gitlab-ci", "gitlab/memwatch-gate.gitlab-ci.yml", ("--data-transform", "gitlab-ci")),
        ("gitlab-ci", "gitlab/memwatch.gitlab-ci.yml", ("--data-transform", "gitlab-ci")),
    ],
)
def test_published_schemas(schema, path, more):
    done = run(
        sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *more, DEPLOY / path
    )
    assert done.returncode == 0, done.stdout


def test_all_yaml_can_be_read():
    files = [path for ending in ("*.yaml", "*.yml") for path in DEPLOY.rglob(ending)]
    assert len(files) > 20
    for path in files:
        assert load_all(path.read_text()), path


def valid(document):
    import kubernetes_validate

    kubernetes_validate.validate(document, "1.33", strict=True)


def manifests():
    for path in sorted(KUBERNETES.rglob("*.yaml")):
        for document in load_all(path.read_text()):
            kind = document.get("kind") if isinstance(document, dict) else None
            if kind and kind not in {"Kustomization", "Component", *CRDS} and "components" not in path.parts:
                yield pytest.param(document, id=f"{path.parent.name}/{kind}")


@pytest.mark.parametrize("manifest", list(manifests()))
def test_manifests(manifest):
    valid(manifest)


def test_a_typing_error_would_be_found():
    import kubernetes_validate

    document = load(KUBERNETES / "base" / "job.yaml")
    document["spec"]["template"]["spec"]["restartPolice"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        valid(document)


def built(overlay):
    """An overlay as kubectl applies it. Debian's kubectl is too old for components: it is tested where a newer one is."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip(
            "kubectl is not installed; no package source of these tests has one that knows components"
        )
    done = run(kubectl, "kustomize", KUBERNETES / "overlays" / overlay)
    if "unknown field" in done.stderr or "unknown command" in done.stderr:
        pytest.skip("this kubectl is too old for components")
    assert done.returncode == 0, done.stderr
    return load_all(done.stdout)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_overlays_are_valid_once_they_are_built(overlay):
    documents = built(overlay)
    assert documents
    for document in documents:
        if document["kind"] not in CRDS:
            valid(document)
    names = {(document["kind"], document["metadata"]["name"]) for document in documents}
    for document in documents:
        for name in re.findall(r'"configMap": \{[^}]*"name": "([^"]+)"', json.dumps(document)):
            assert ("ConfigMap", name) in names


def pods(documents):
    for document in documents:
        spec = document.get("spec", {})
        spec = spec.get("jobTemplate", {}).get("spec", spec)
        if "template" in spec and "containers" in spec["template"].get("spec", {}):
            yield spec["template"]["spec"]


@pytest.mark.parametrize("overlay", [name for name in OVERLAYS if name != "rules"])
def test_pods_are_restricted(overlay):
    """The levels of Pod Security Standards, "restricted"; and more than it asks for: a root file system read-only."""
    found = list(pods(built(overlay)))
    assert found
    for pod in found:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not set(pod) & {"hostNetwork", "hostPID", "hostIPC"}
        assert all(set(volume) & {"emptyDir", "configMap"} for volume in pod.get("volumes", ()))
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True
            assert container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_variables_stand_after_those_that_they_refer_to(overlay):
    found = list(pods(built(overlay)))
    assert found or overlay == "rules"  # which only has rules for alerts
    for pod in found:
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            known = set()
            for variable in container.get("env", ()):
                assert set(re.findall(r"\$\((\w+)\)", variable.get("value", ""))) <= known
                known.add(variable["name"])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_mounts_have_their_volumes(overlay):
    found = list(pods(built(overlay)))
    assert found or overlay == "rules"  # which only has rules for alerts
    for pod in found:
        volumes = {volume["name"] for volume in pod.get("volumes", ())}
        mounts = {
            mount["name"]
            for container in (*pod.get("initContainers", ()), *pod["containers"])
            for mount in container.get("volumeMounts", ())
        }
        assert mounts == volumes


def test_variables_of_the_pods_are_options_and_understood(tmp_path):
    """With the pod's environment the resource says where the run is."""
    pod = load(KUBERNETES / "base" / "job.yaml")["spec"]["template"]["spec"]
    variables = {one["name"]: one.get("value", f"value-{one['name']}") for one in pod["containers"][0]["env"]}
    variables["OTEL_MEMWATCH_OUT"] = str(tmp_path / "run")
    variables["OTEL_MEMWATCH_TERMINATION_LOG"] = str(tmp_path / "log")
    del variables["OTEL_EXPORTER_OTLP_ENDPOINT"]
    command = [sys.executable, "-m", "otel_memwatch", "wrap", "--no-plot", "--", "true"]
    done = run(*command, env={**os.environ, **variables})
    assert done.returncode == 0, done.stderr
    resource = json.loads((tmp_path / "run" / "run.json").read_text())["resource"]
    assert resource["k8s.pod.uid"] == "value-K8S_POD_UID"
    assert resource["k8s.job.name"] == "train"
    assert resource["service.version"] == "1.0"
    assert "exit code 0" in (tmp_path / "log").read_text()


def test_what_a_cluster_needs_once_is_in_one_place_and_complete():
    kinds = [(document["kind"], document["metadata"]["name"]) for document in built("observability")]
    assert ("Namespace", "observability") in kinds
    assert {"PodDisruptionBudget", "NetworkPolicy", "Deployment"} <= {kind for kind, _ in kinds}
    (rules,) = built("rules")
    assert rules["metadata"]["labels"]["release"] == "kube-prometheus-stack"
    for overlay in OVERLAYS:
        loaded = [document for document in built(overlay) if document["kind"] == "PrometheusRule"]
        assert bool(loaded) == (overlay == "rules"), "rules that are loaded twice record and alert twice"


def test_the_scraped_port_is_open_to_prometheus_alone():
    (policy,) = [document for document in built("scraped") if document["kind"] == "NetworkPolicy"]
    open_to_all, scraped = [], []
    for rule in policy["spec"]["ingress"]:
        ports = [
            (port["port"], port.get("endPort", port["port"]))
            for port in rule["ports"]
            if port["protocol"] == "TCP"
        ]
        (scraped if "from" in rule else open_to_all).extend(ports)
    assert scraped == [(9464, 9464)]
    assert sorted(open_to_all) == [(1, 9463), (9465, 65535)]


def test_the_operators_rules_are_those_of_the_files():
    """The kinds of the Prometheus operator, as far as they can be tested without their schemas."""
    rules = load(KUBERNETES / "overlays" / "rules" / "rules.yaml")
    assert (rules["apiVersion"], rules["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    files = sorted((ROOT / "dashboards" / "prometheus").glob("*-records.yml")) + sorted(
        (ROOT / "dashboards" / "prometheus").glob("*-alerts.yml")
    )
    assert rules["spec"]["groups"] == [group for path in files for group in load(path)["groups"]]
    monitor = load(KUBERNETES / "components" / "monitoring" / "podmonitor.yaml")
    assert (monitor["apiVersion"], monitor["kind"]) == ("monitoring.coreos.com/v1", "PodMonitor")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    patch = load(KUBERNETES / "components" / "monitoring" / "job.yaml")
    (container,) = patch["spec"]["template"]["spec"]["containers"]
    assert endpoint["port"] in [port["name"] for port in container["ports"]]
    linger = next(float(one["value"]) for one in container["env"] if one["name"] == "OTEL_MEMWATCH_LINGER")
    assert linger > float(endpoint["interval"].removesuffix("s"))
    labels = load(KUBERNETES / "base" / "job.yaml")["spec"]["template"]["metadata"]["labels"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["spec"]["jobLabel"] in labels


# -- Collector, Prometheus, compose

COLLECTORS = ["collector/gateway.yaml", "collector/sidecar.yaml", "compose/collector.yaml"]


@pytest.mark.parametrize("path", COLLECTORS)
def test_pipelines_use_what_is_defined_and_all_of_it(path):
    config = load(DEPLOY / path)
    pipelines = config["service"]["pipelines"].values()
    assert set(config["service"]["pipelines"]) == {"metrics", "traces", "logs"}
    for part in ("receivers", "processors", "exporters"):
        assert {name for pipeline in pipelines for name in pipeline[part]} == set(config[part])
    assert set(config.get("extensions", ())) == set(config["service"].get("extensions", ()))
    for pipeline in pipelines:
        assert pipeline["processors"][0] == "memory_limiter"


@pytest.mark.parametrize("name", ["prometheus/otlp.yml", "prometheus/scrape.yml", "compose/prometheus.yml"])
def test_prometheus_takes_its_configuration(name, tmp_path):
    """All but the section otlp, which Debian's Prometheus is too old for."""
    config = load(DEPLOY / name)
    otlp = config.pop("otlp", {})
    assert set(otlp) <= {
        "promote_resource_attributes", "keep_identifying_resource_attributes", "translation_strategy",
    }  # fmt: skip
    rules = tmp_path / "rules"
    shutil.copytree(ROOT / "dashboards" / "prometheus", rules)
    config["rule_files"] = [str(rules / Path(file).name) for file in config["rule_files"]]
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    done = run(needed("promtool"), "check", "config", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_compose_mounts_what_there_is_and_shows_nothing_to_the_network():
    compose = load(DEPLOY / "compose" / "compose.yaml")
    for name, service in compose["services"].items():
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            known = (
                (DEPLOY / "compose" / source).exists()
                if source.startswith(".")
                else source in compose["volumes"]
            )
            assert known, f"{name}: {volume}"
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
        assert ":" in service["image"]
        assert not service["image"].endswith(":latest")
    build = compose["services"]["demo"]["build"]
    assert (DEPLOY / "compose" / build["context"] / build["dockerfile"]).is_file()


def test_grafana_gets_the_dashboards_and_their_sources():
    sources = load(DEPLOY / "compose" / "grafana" / "datasources" / "sources.yaml")["datasources"]
    assert {source["type"] for source in sources} == {"prometheus", "tempo", "loki"}
    (destination,) = sources[0]["jsonData"]["exemplarTraceIdDestinations"]
    assert destination["datasourceUid"] in {source["uid"] for source in sources}
    provider = load(DEPLOY / "compose" / "grafana" / "dashboards" / "provider.yaml")["providers"][0]
    mounts = load(DEPLOY / "compose" / "compose.yaml")["services"]["grafana"]["volumes"]
    assert f"../../dashboards/grafana:{provider['options']['path']}:ro" in mounts


# -- shell


def scripts():
    return sorted(path for path in DEPLOY.rglob("*") if path.suffix in {".sh", ".sbatch"})


def test_shellcheck():
    assert len(scripts()) == 9
    done = run(needed("shellcheck"), *scripts())
    assert done.returncode == 0, done.stdout


def test_both_actions_install_alike():
    """Either can be copied without the other one."""
    actions = DEPLOY / "github-actions"
    assert (actions / "install.sh").read_bytes() == (actions / "gate" / "install.sh").read_bytes()
    for path in (actions / "example.yml", actions / "gate" / "example.yml"):
        assert f"otel-memwatch@v{__version__}\n" in path.read_text()


def test_gitlabs_gate_installs_what_compare_needs():
    job = load(DEPLOY / "gitlab" / "memwatch-gate.gitlab-ci.yml")[".memwatch-gate"]
    requirement = re.search(r'^compare = \["(.*)"\]$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[1]
    assert any(f'"{requirement}"' in line for line in job["before_script"])


def test_hadolint():
    done = run(needed("hadolint"), "--no-color", DEPLOY / "container" / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_actionlint(tmp_path):
    """The workflows that use the actions, with the actions where they say: inputs and outputs are looked up there."""
    actions = tmp_path / ".github" / "actions"
    shutil.copytree(DEPLOY / "github-actions", actions / "otel-memwatch")
    shutil.copytree(DEPLOY / "github-actions" / "gate", actions / "otel-memwatch-gate")
    workflows = tmp_path / ".github" / "workflows"
    workflows.mkdir()
    for name in ("example.yml", "gate/example.yml"):
        shutil.copy(DEPLOY / "github-actions" / name, workflows / name.replace("/", "-"))
    assert run("git", "init", "-q", cwd=tmp_path).returncode == 0
    done = run(needed("actionlint"), "-no-color", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    example = workflows / "example.yml"
    example.write_text(example.read_text().replace("otlp-headers:", "otlp-haeders:"))
    assert "otlp-haeders" in run(needed("actionlint"), "-no-color", cwd=tmp_path).stdout


def test_actions_of_others_are_pinned_to_a_commit():
    found = [
        line.strip().removeprefix("- ")
        for path in DEPLOY.rglob("*.yml")
        for line in path.read_text().splitlines()
        if re.match(r"\s*(- )?uses: (?!\./)", line)
    ]
    assert len(found) >= 6
    for line in found:
        assert re.fullmatch(r"uses: actions/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", line), line


def test_the_labels_that_dashboards_choose_by_are_there_for_what_is_pushed():
    gateway = load(DEPLOY / "collector" / "gateway.yaml")
    made = {one["key"] for one in gateway["processors"]["resource/place"]["attributes"]}
    assert "resource/place" in gateway["service"]["pipelines"]["metrics"]["processors"]
    promoted = load(DEPLOY / "prometheus" / "otlp.yml")["otlp"]["promote_resource_attributes"]
    board = (ROOT / "dashboards" / "grafana" / "memwatch-fleet.json").read_text()
    chosen_by = set(re.findall(r'(\w+)=~\\"\$(?:cluster|namespace)\\"', board))
    assert chosen_by == made == {"cluster", "namespace"}
    assert made <= set(promoted)


def test_scripts_may_be_executed():
    assert all(os.access(path, os.X_OK) for path in scripts())
