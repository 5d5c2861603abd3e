"""Which devices a CUDA program may use, as CUDA's own rules have it."""

from __future__ import annotations

import pytest

from otel_memwatch.monitor.sampling.sources.gpu_nvidia.visible import Identity, visible

# NVML's order need not be the bus's: it is not here.
A = Identity("GPU-aaaaaaaa-0000-0000-0000-000000000001", "00000000:3b:00.0", "H100")
B = Identity("GPU-bbbbbbbb-0000-0000-0000-000000000002", "00000000:1a:00.0", "H100")
C = Identity("GPU-aaaacccc-0000-0000-0000-000000000003", "00000000:d8:00.0", "H100")
ALIKE = [A, B, C]
BUS_ORDER = (B, A, C)
OLD = Identity("GPU-dddddddd-0000-0000-0000-000000000004", "00000000:01:00.0", "T4")
MIXED = [OLD, A]
FIRST = Identity("MIG-11111111-0000-0000-0000-000000000001", "00000000:3b:00.0", "H100 1g", A.uuid, (7, 0))
OTHER = Identity("MIG-22222222-0000-0000-0000-000000000002", "00000000:3b:00.0", "H100 1g", A.uuid, (8, 0))
PARTED = [A, FIRST, OTHER]


def cuda(wanted: str | None, order: str | None = None) -> dict[str, str]:
    given = {"CUDA_VISIBLE_DEVICES": wanted, "CUDA_DEVICE_ORDER": order}
    return {name: value for name, value in given.items() if value is not None}


def test_without_the_variable_all_are_visible_in_the_order_of_the_bus() -> None:
    assert visible({}, ALIKE) == (BUS_ORDER, True)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("0", (B,)),
        ("1", (A,)),
        ("2,0", (C, B)),
        (" 1 , 2", (A, C)),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("0,2,-1,1", (B, C)),  # NVIDIA's own example: what follows an invalid index does not count
        ("0,7,1", (B,)),
        ("0,,1", (B,)),
        ("1gpu,2", (A, C)),  # read as strtol does
        ("1,1", ()),  # a repeated device leaves none
    ],
)
def test_indices_count_in_the_order_of_the_bus(wanted: str, expected: tuple[Identity, ...]) -> None:
    assert visible(cuda(wanted), ALIKE) == (expected, True)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (A.uuid, (A,)),
        ("GPU-bbbb", (B,)),
        ("GPU-aaaac,GPU-bb", (C, B)),
        ("GPU-aaaa", ()),  # two devices begin so
        ("GPU-bbbb,GPU-ffff,GPU-aaaac", (B,)),
        ("GPU-bbbb,1", (B,)),
        ("GPU-bbbb,GPU-bbbbbb", ()),
    ],
)
def test_uuids_may_be_abbreviated_but_must_be_unique(wanted: str, expected: tuple[Identity, ...]) -> None:
    assert visible(cuda(wanted), ALIKE) == (expected, True)


def test_among_different_models_an_index_means_nothing_certain() -> None:
    assert visible(cuda("0"), MIXED) == ((OLD, A), False)
    assert visible({}, MIXED) == ((OLD, A), False)


def test_the_order_of_the_bus_can_be_asked_for() -> None:
    assert visible(cuda("0", "PCI_BUS_ID"), MIXED) == ((OLD,), True)
    assert visible(cuda("1", "PCI_BUS_ID"), MIXED) == ((A,), True)
    assert visible(cuda("0", "FASTEST_FIRST"), MIXED).certain is False


def test_uuids_need_no_order() -> None:
    assert visible(cuda("GPU-dd"), MIXED) == ((OLD,), True)


def test_a_card_in_mig_mode_stands_for_its_instances() -> None:
    assert visible({}, PARTED) == ((FIRST, OTHER), False)
    assert visible(cuda("0"), PARTED) == ((FIRST, OTHER), False)
    assert visible(cuda(A.uuid), PARTED) == ((FIRST, OTHER), False)


@pytest.mark.parametrize("wanted", [OTHER.uuid, "MIG-2222", f"MIG-{A.uuid}/8/0"])
def test_an_instance_is_named_by_uuid_or_in_the_old_way(wanted: str) -> None:
    assert visible(cuda(wanted), PARTED) == ((OTHER,), True)


def test_the_only_device_needs_no_order() -> None:
    assert visible(cuda("0"), [OLD]) == ((OLD,), True)
