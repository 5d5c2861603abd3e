"""GPUs that a CUDA program may use, from its environment alone.

The rules are from the CUDA programming guide (environment variables) and from CUDA's parser:

- An identifier is an index in CUDA's order, a UUID or its abbreviation, or the name of a MIG instance.
- The list ends at the first invalid identifier.
- A repeated identifier leaves no device at all.

CUDA's index differs from NVML's: CUDA counts the fastest device as 0 unless `CUDA_DEVICE_ORDER=PCI_BUS_ID`, NVML
counts by PCI bus.
"""

from __future__ import annotations

import re

from otel_memwatch.runtime.typed import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"
ORDER_VARIABLE = "CUDA_DEVICE_ORDER"

_INDEX = re.compile(r"\s*([+-]?\d+)")
_DIGITS = 100


class Identity(NamedTuple):
    """Identity of a device."""

    uuid: str
    pci: str
    """Bus id, "00000000:3b:00.0"; a MIG instance has that of its card."""
    name: str
    """Model."""
    parent: str | None = None
    """UUID of its card, for a MIG instance."""
    instance: tuple[int, int] | None = None
    """GPU instance and compute instance, for a MIG instance."""


class Visible(NamedTuple):
    """Result of `visible`."""

    devices: tuple[Identity, ...]
    """In CUDA's order if known, otherwise by PCI bus."""
    certain: bool
    """False: the rules leave it open, and `devices` has all candidates."""


def visible(environment: Mapping[str, str], devices: Sequence[Identity]) -> Visible:
    """Return the devices that a program with this environment may use, from all devices of the machine.

    A card in MIG mode is no CUDA device; its instances are. If no UUID names one of several instances, CUDA's choice
    depends on the driver's version; then all of them are returned.
    """
    cards = {device.parent for device in devices if device.parent}
    usable = [device for device in devices if device.uuid not in cards]
    usable.sort(key=lambda device: (device.pci.lower(), device.instance or (-1, -1)))
    wanted = environment.get(VISIBLE_VARIABLE)
    ordered = _order_known(environment, usable)
    if wanted is None:
        return Visible(tuple(usable), ordered)
    if wanted.strip().startswith(("GPU-", "MIG-")):
        return _by_uuid(wanted, devices, usable)
    chosen: list[int] = []
    for text in wanted.split(","):
        match = _INDEX.match(text)
        # Python does not convert thousands of digits to a number.
        index = int(match[1]) if match and len(match[1]) < _DIGITS else -1
        if index in chosen:
            return Visible((), True)
        if not 0 <= index < len(usable):
            break
        chosen.append(index)
    if not ordered and chosen:
        return Visible(tuple(usable), False)
    return Visible(tuple(usable[index] for index in chosen), True)


def _order_known(environment: Mapping[str, str], usable: Sequence[Identity]) -> bool:
    """Return whether CUDA's indices follow the PCI bus. CUDA's choice of the fastest card is undocumented."""
    if len(usable) <= 1:
        return True
    if any(device.parent for device in usable):
        return False
    return environment.get(ORDER_VARIABLE) == "PCI_BUS_ID" or len({device.name for device in usable}) == 1


def _by_uuid(wanted: str, devices: Sequence[Identity], usable: Sequence[Identity]) -> Visible:
    chosen: list[Identity] = []
    for text in wanted.split(","):
        device = _named(text.strip(), devices)
        if device is None:
            break
        if device in chosen:
            return Visible((), True)
        chosen.append(device)
    if all(device in usable for device in chosen):
        return Visible(tuple(chosen), True)
    uuids = {device.uuid for device in chosen}
    return Visible(tuple(d for d in usable if d.uuid in uuids or d.parent in uuids), False)


def _named(text: str, devices: Sequence[Identity]) -> Identity | None:
    """Return the device that `text` names; `None` if it names none or several."""
    if text.startswith("MIG-GPU-"):
        # The name before driver 470: "MIG-GPU-<card>/<GPU instance>/<compute instance>".
        found = [
            device
            for device in devices
            if device.parent
            and device.instance
            and f"MIG-{device.parent}/{device.instance[0]}/{device.instance[1]}" == text
        ]
    elif text.startswith(("GPU-", "MIG-")):
        found = [device for device in devices if device.uuid.startswith(text)]
    else:
        found = []
    return found[0] if len(found) == 1 else None
