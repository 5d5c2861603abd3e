from __future__ import annotations

import pytest

from otel_memwatch.record.resource import ci_attributes, parse_attributes, resource_attributes
from otel_memwatch.run.spans import resource_of
from tests.support.telemetry_run import run_info

ID = "b" * 64


def test_what_is_said_of_a_run(tmp_path):
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text('NAME="x"\nPRETTY_NAME="Debian 12"\n')
    (tmp_path / "etc/machine-id").write_text("abc\n")
    attributes = resource_attributes(run_info(), {}, tmp_path)
    assert attributes["service.name"] == "train"
    assert attributes["service.instance.id"] == "a-run-b7ad6b71"
    assert attributes["memwatch.run.id"] == "a-run"
    assert attributes["process.pid"] == 4242
    assert attributes["process.executable.name"] == "train"
    assert attributes["process.creation.time"].endswith("Z")
    assert attributes["host.arch"] == "amd64"
    assert attributes["host.id"] == "abc"
    assert attributes["os.description"] == "Debian 12"
    assert "hunter2" not in str(attributes), "an argument of the command"
    assert not [name for name in attributes if name.startswith(("cicd.", "container.", "k8s."))]


def test_the_name_of_a_run_is_its_service(tmp_path):
    named = resource_attributes({**run_info(), "name": "nightly"}, {}, tmp_path)
    assert named["service.name"] == "nightly"
    assert named["process.executable.name"] == "train"
    ours = {"OTEL_SERVICE_NAME": "theirs"}
    assert resource_attributes({**run_info(), "name": "nightly"}, ours, tmp_path)["service.name"] == "theirs"
    assert resource_attributes({**run_info(), "name": None}, {}, tmp_path)["service.name"] == "train"
    assert resource_of({"name": "nightly", "command": ["/bin/train"]})["service.name"] == "nightly"
    assert resource_of({"name": None, "command": ["/bin/train"]})["service.name"] == "train"


def test_what_the_person_said_comes_first(tmp_path):
    environ = {
        "OTEL_RESOURCE_ATTRIBUTES": "service.name=theirs,deployment.environment.name=a%20b,service.instance.id=7,,=x,y",
        "OTEL_SERVICE_NAME": "named",
    }
    attributes = resource_attributes(run_info(), environ, tmp_path)
    assert attributes["service.name"] == "named"
    assert attributes["service.instance.id"] == "7"
    assert attributes["deployment.environment.name"] == "a b"
    del environ["OTEL_SERVICE_NAME"]
    assert resource_attributes(run_info(), environ, tmp_path)["service.name"] == "theirs"
    assert parse_attributes("a=b=c") == {"a": "b=c"}


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("cgroup", f"0::/kubepods.slice/pod1/cri-containerd-{ID}.scope\n"),
        ("cgroup", f"12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n"),
        (
            "mountinfo",
            f"1 2 0:1 /var/lib/docker/containers/{ID}/hostname /etc/hostname rw - ext4 /dev/x rw\n",
        ),
    ],
)
def test_the_container(tmp_path, file, text):
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self" / file).write_text(text)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/machine-id").write_text("of the image")
    attributes = resource_attributes(run_info(), {}, tmp_path)
    assert attributes["container.id"] == ID
    assert "host.id" not in attributes


def test_the_pod(tmp_path):
    secret = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    secret.mkdir(parents=True)
    (secret / "namespace").write_text("team")
    inside = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-x7", "NODE_NAME": "n1"}
    attributes = resource_attributes(run_info(), inside, tmp_path)
    assert attributes["k8s.pod.name"] == "train-x7"
    assert attributes["k8s.namespace.name"] == "team"
    assert attributes["k8s.node.name"] == "n1"
    downward = {**inside, "K8S_POD_NAME": "p", "K8S_POD_UID": "u", "K8S_NAMESPACE": "ns"}
    attributes = resource_attributes(run_info(), downward, tmp_path)
    assert (attributes["k8s.pod.name"], attributes["k8s.pod.uid"], attributes["k8s.namespace.name"]) == (
        "p",
        "u",
        "ns",
    )
    outside = resource_attributes(run_info(), {"NODE_NAME": "jenkins", "HOSTNAME": "x"}, tmp_path)
    assert not [name for name in outside if name.startswith("k8s.")]


def test_slurm(tmp_path):
    attributes = resource_attributes(run_info(), {"SLURM_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "3"}, tmp_path)
    assert attributes["memwatch.slurm.job.id"] == "9"
    assert attributes["memwatch.slurm.array.task.id"] == "3"


def test_github():
    environ = {
        "GITHUB_ACTIONS": "true", "GITHUB_WORKFLOW": "CI", "GITHUB_RUN_ID": "5", "GITHUB_RUN_ATTEMPT": "2",
        "GITHUB_SERVER_URL": "https://github.com", "GITHUB_REPOSITORY": "o/r", "GITHUB_JOB": "test",
        "GITHUB_SHA": "abc", "GITHUB_REF_NAME": "main", "RUNNER_NAME": "r1",
    }  # fmt: skip
    attributes = ci_attributes(environ)
    assert attributes["cicd.pipeline.run.id"] == "5-2"
    assert attributes["cicd.pipeline.run.url.full"] == "https://github.com/o/r/actions/runs/5"
    assert attributes["vcs.ref.head.name"] == "main"
    assert not [
        name for name in resource_attributes(run_info(), environ) if name.startswith(("cicd.", "vcs."))
    ]


def test_gitlab_and_jenkins():
    gitlab = ci_attributes(
        {"GITLAB_CI": "true", "CI_PIPELINE_ID": "1", "CI_JOB_ID": "2", "CI_PROJECT_PATH": "g/p"}
    )
    assert gitlab["cicd.pipeline.name"] == "g/p"
    assert gitlab["cicd.pipeline.task.run.id"] == "2"
    jenkins = ci_attributes(
        {
            "JENKINS_URL": "http://j",
            "JOB_NAME": "nightly",
            "BUILD_NUMBER": "8",
            "GIT_URL": "https://me:token@git.example/r",
        }
    )
    assert jenkins["cicd.pipeline.run.id"] == "8"
    assert jenkins["vcs.repository.url.full"] == "https://git.example/r"
    assert ci_attributes({}) == {}
