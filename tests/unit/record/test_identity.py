"""Group and rank, of the environments that launchers make."""

from __future__ import annotations

import pytest

from otel_memwatch.record.identity import GroupIdentity, boot_id, group_attributes, identity, monotonic_offset

TORCHRUN = {
    "TORCHELASTIC_RUN_ID": "job7", "RANK": "5", "LOCAL_RANK": "1", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4",
    "GROUP_RANK": "1", "ROLE_RANK": "5", "TORCHELASTIC_RESTART_COUNT": "2", "MASTER_ADDR": "node0", "MASTER_PORT": "29500",
}  # fmt: skip
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4",
    "PMIX_NAMESPACE": "2738880513", "PMIX_RANK": "3", "OMPI_MCA_ess_base_jobid": "2738880513",
}  # fmt: skip
STEP = {
    "SLURM_JOB_ID": "12", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_LOCALID": "0", "SLURM_NODEID": "1",
    "SLURM_STEP_NUM_TASKS": "4", "SLURM_NTASKS": "4",
}  # fmt: skip
ARRAY = {
    "SLURM_JOB_ID": "33", "SLURM_ARRAY_JOB_ID": "30", "SLURM_ARRAY_TASK_ID": "7", "SLURM_ARRAY_TASK_COUNT": "4",
    "SLURM_ARRAY_TASK_MIN": "1", "SLURM_ARRAY_TASK_MAX": "10", "SLURM_ARRAY_TASK_STEP": "3", "SLURM_PROCID": "0",
}  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        (TORCHRUN, GroupIdentity("job7", "torchrun", 5, 1, 8, node=1, attempt=2)),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none"}, GroupIdentity("node0:29500", "torchrun", 5, 1, 8, node=1, attempt=2)),
        ({**TORCHRUN, "TORCHELASTIC_RUN_ID": "none", **STEP}, GroupIdentity("slurm-12", "torchrun", 5, 1, 8, node=1, attempt=2)),
        (OPEN_MPI, GroupIdentity("mpi-2738880513", "openmpi", 3, 3, 4)),
        ({**OPEN_MPI, **STEP}, GroupIdentity("mpi-2738880513", "openmpi", 3, 3, 4)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1", "PBS_JOBID": "9.head"}, GroupIdentity("pbs-9.head", "mpi", 1, 1, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, None),
        ({"PMIX_RANK": "2", "PMIX_NAMESPACE": "slurm.pmix.12.0", **STEP}, GroupIdentity("slurm-12.0", "slurm", 2, 0, 4, node=1)),
        (STEP, GroupIdentity("slurm-12.0", "slurm", 2, 0, 4, node=1)),
        # A batch script is no step, though it has a number.
        ({"SLURM_JOB_ID": "12", "SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, None),
        (ARRAY, GroupIdentity("slurm-array-30", "slurm array", 7, None, 4, 1, 3)),
        ({**ARRAY, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}, GroupIdentity("slurm-array-30", "slurm array", 7, None, 4, 1, 3)),
        ({**ARRAY, **STEP, "SLURM_RESTART_COUNT": "1"}, GroupIdentity("slurm-12.0", "slurm", 2, 0, 4, node=1, attempt=1)),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "head-0", "MASTER_PORT": "23456"}, GroupIdentity("head-0:23456", "env", 0, None, 2)),
        ({"RANK": "0"}, None),
        ({"FLUX_JOB_ID": "f23", "FLUX_TASK_RANK": "1", "FLUX_TASK_LOCAL_ID": "1", "FLUX_JOB_SIZE": "2"}, GroupIdentity("flux-f23", "flux", 1, 1, 2)),
        ({"JOB_COMPLETION_INDEX": "4", "HOSTNAME": "fit-4"}, GroupIdentity("fit", "kubernetes", 4)),
        ({"JOB_COMPLETION_INDEX": "4", "HOSTNAME": "something"}, None),
        ({"RAY_JOB_ID": "02000000"}, GroupIdentity("ray-02000000", "ray")),
        ({}, None),
        ({"OMPI_COMM_WORLD_RANK": "minus one"}, None),
    ],
)  # fmt: skip
def test_what_each_launcher_shows(environ, expected):
    assert identity(environ, {}) == expected


def test_a_pod_of_an_indexed_job_has_the_name_of_its_job_and_its_namespace():
    resource = {"k8s.pod.name": "fit-model-12-x7k2p", "k8s.namespace.name": "lab"}
    assert identity({"JOB_COMPLETION_INDEX": "12"}, resource) == GroupIdentity(
        "lab.fit-model", "kubernetes", 12
    )
    named = {**resource, "k8s.job.name": "other"}
    assert identity({"JOB_COMPLETION_INDEX": "12"}, named) == GroupIdentity("lab.other", "kubernetes", 12)


def test_what_a_person_says_comes_first():
    assert identity(TORCHRUN, {}, "mine", 9) == GroupIdentity("mine", "torchrun", 9, 1, 8, node=1, attempt=2)
    assert identity({}, {}, "mine") == GroupIdentity("mine", "given")
    assert identity({}, {}, None, 3) is None


def test_a_group_can_be_named_beside_paths():
    assert identity({**TORCHRUN, "TORCHELASTIC_RUN_ID": " a/b\n"}, {}).group == "a_b"


def test_attributes_of_the_resource():
    assert group_attributes(identity(TORCHRUN, {})) == {
        "memwatch.group.id": "job7", "memwatch.group.rank": 5, "memwatch.group.local_rank": 1, "memwatch.group.size": 8,
    }  # fmt: skip


def test_the_id_of_this_start_of_the_machine_and_its_time_namespace(tmp_path):
    assert boot_id() == boot_id()
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "timens_offsets").write_text("monotonic    86400  500000000\nboottime 0 0\n")
    assert monotonic_offset(str(tmp_path)) == 86400.5
    assert monotonic_offset(str(tmp_path / "none")) == 0.0
    assert boot_id(str(tmp_path)) is None
