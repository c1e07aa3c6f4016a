"""Refuses requests to kubernetes/render that the cluster would refuse later or misinterpret."""

from __future__ import annotations

import argparse
import re

from manifests.instances import Mistake, Node
from manifests.request import Request

NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
# The host name of a pod, NAME-launcher-0-0, has at most 63 characters.
LONGEST_NAME = 40
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# A region and a letter. Names of local zones have an additional part between them.
ZONE = re.compile(r"[a-z]{2,}(-[a-z]+)+-[0-9]+[a-z]")
FLAG = re.compile(r"[a-z][a-z0-9_]*(=.*)?", re.DOTALL)
# Variables that kubernetes/render sets from the request.
OWN = ("MPZERO_NODES", "MPZERO_GPUS", "MPZERO_EFA", "GRACE_PERIOD", "NPROC")
# Kubeflow Trainer refuses a TrainJob that sets any of these variables.
RESERVED = ("OMPI_MCA_orte_", "OMPI_MCA_plm_rsh_args")
RESERVED_CAPACITIES = ("reserved", "block")
CAPACITIES = ("on-demand", "spot", *RESERVED_CAPACITIES)
# Minimum memory of a pod in GiB, excluding huge pages, for mpzero itself and /dev/shm.
LEAST_MEMORY = 4


def check_options(options: argparse.Namespace) -> None:
    """Checks each argument and conflicts between arguments."""
    if not NAME.fullmatch(options.name) or len(options.name) > LONGEST_NAME:
        raise Mistake(
            f"--name {options.name} must consist of at most {LONGEST_NAME} lowercase letters, digits and dashes."
        )
    if not NAMESPACE.fullmatch(options.namespace):
        raise Mistake(
            f"--namespace {options.namespace} must consist of at most 63 lowercase letters, digits and dashes."
        )
    for flag, least in (("nodes", 1), ("ranks", 1), ("grace_seconds", 60), ("hugepages_mib", 0), ("storage_gib", 1)):
        if getattr(options, flag) < least:
            raise Mistake(f"--{flag} {getattr(options, flag)} must be at least {least}.")
    check_zones(options.zone.split(",") if options.zone else [])
    for flag in options.flag:
        if not FLAG.fullmatch(flag):
            raise Mistake(f"--flag {flag} must be a flag of mpzero train without --, such as logging_freq=1.")
    check_capacity(options)
    if options.topology and not options.queue:
        raise Mistake("--topology requires Kueue: also pass --queue.")


def check_zones(zones: list[str]) -> None:
    for zone in zones:
        if not ZONE.fullmatch(zone):
            raise Mistake(f"--zone {zone} must be an availability zone such as us-west-2a, not a local zone.")
    if len({zone[:-1] for zone in zones}) > 1:
        raise Mistake(f"--zone {','.join(zones)} contains zones of different regions; pass zones of a single region.")


def check_capacity(options: argparse.Namespace) -> None:
    kinds = options.capacity.split(",")
    for kind in kinds:
        if kind not in CAPACITIES:
            raise Mistake(f"--capacity {kind} must be one of {', '.join(CAPACITIES)}.")
    reserved = [kind for kind in kinds if kind in RESERVED_CAPACITIES]
    if reserved and len(kinds) > 1:
        raise Mistake(
            f"--capacity {options.capacity}: {reserved[0]} cannot be combined with other types; pass it alone."
        )
    if bool(reserved) != bool(options.reservation):
        raise Mistake("--capacity reserved or block and --reservation ID require each other: pass both or omit both.")
    if kinds == ["block"] and options.placement_group:
        raise Mistake(
            f"--placement_group {options.placement_group}: a capacity block has a fixed location, so EC2 cannot find"
            " capacity for a placement group; remove --placement_group."
        )
    for flag in ("placement_group", "reservation"):
        if "," in options.zone and getattr(options, flag):
            raise Mistake(f"--{flag} {getattr(options, flag)} is in one zone; pass only that zone with --zone.")


def check_hyperpod(options: argparse.Namespace, node: Node) -> None:
    if node.hyperpod and len(node.types) > 1:
        raise Mistake(f"--instance {options.instance}: HyperPod's nodes already exist; pass a single instance type.")
    for flag, default in (("capacity", "on-demand"), ("placement_group", ""), ("reservation", ""), ("cluster", "")):
        value = getattr(options, flag)
        if node.hyperpod and value != default:
            raise Mistake(
                f"--{flag} {value} applies to nodes that Karpenter creates, but {node.name} is managed by HyperPod;"
                " set it in HyperPod's instance group."
            )


def check_hugepages(mib: int, node: Node) -> None:
    if node.memory_gib * 1024 - mib < LEAST_MEMORY * 1024:
        raise Mistake(
            f"--hugepages_mib {mib} leaves less than {LEAST_MEMORY} GiB of the {node.memory_gib} GiB"
            f" that a pod has on {node.name}; pass a smaller number."
        )
    if mib % 2:
        raise Mistake(f"--hugepages_mib {mib} is not a multiple of the 2 MiB page size; pass an even number.")


def check_network(request: Request, no_efa: bool) -> None:
    if request.variables.get("NETWORK") != "efa":
        return
    if no_efa:
        raise Mistake("--set NETWORK=efa conflicts with --no_efa, which requests no EFA devices; remove one of them.")
    if request.nodes > 1 and request.efa_devices == 0:
        raise Mistake(f"--set NETWORK=efa: pods on {request.node.name} have no EFA devices; remove it.")


def read_variables(words: list[str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise Mistake(f"--set {word} must be VARIABLE=VALUE.")
        check_variable("--set", name, variables)
        variables[name] = value
    return variables


def read_secrets(words: list[str], variables: dict[str, str]) -> dict[str, tuple[str, str]]:
    secrets: dict[str, tuple[str, str]] = {}
    for word in words:
        found = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)=([a-z0-9.-]+):([A-Za-z0-9._-]+)", word)
        if not found:
            raise Mistake(f"--secret {word} must be VARIABLE=SECRET:KEY, with the name of a Secret in the namespace.")
        name = found[1]
        check_variable("--secret", name, secrets)
        if name in variables:
            raise Mistake(f"--set {name} and --secret {name} set the same variable; pass only one of them.")
        secrets[name] = (found[2], found[3])
    return secrets


def check_variable(flag: str, name: str, given: dict) -> None:
    if name in OWN:
        raise Mistake(
            f"{flag} {name}: kubernetes/render sets it; use --nodes, --instance, --ranks or --grace_seconds instead."
        )
    if name.startswith(RESERVED):
        raise Mistake(
            f"{flag} {name}: container/launch sets it, and Kubeflow Trainer refuses it in a TrainJob; remove it."
        )
    if name in given:
        raise Mistake(f"{flag} {name} is set twice; pass it once.")
