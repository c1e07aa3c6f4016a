"""What kubernetes/render refuses, since the cluster would refuse it later, or do something else."""

from __future__ import annotations

import argparse
import re

from manifests.instances import Node
from manifests.request import Request

NAME = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?")
# A pod's host name is NAME-launcher-0-0, and has 63 characters at most.
LONGEST_NAME = 40
NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# A region and a letter. A local zone has a name of its own between them.
ZONE = re.compile(r"[a-z]{2,}(-[a-z]+)+-[0-9]+[a-z]")
FLAG = re.compile(r"[a-z][a-z0-9_]*(=.*)?", re.DOTALL)
# Those that kubernetes/render sets by itself, since they say what is requested.
OWN = ("MPZERO_NODES", "MPZERO_GPUS", "MPZERO_EFA", "GRACE_PERIOD", "NPROC")
# Kubeflow Trainer refuses a TrainJob that sets one of these.
RESERVED = ("OMPI_MCA_orte_", "OMPI_MCA_plm_rsh_args")
RESERVED_CAPACITIES = ("reserved", "block")
CAPACITIES = ("on-demand", "spot", *RESERVED_CAPACITIES)
# GiB that a pod has beside huge pages: mpzero itself, and /dev/shm.
LEAST_MEMORY = 4


class Mistake(ValueError):
    """Of the user: one sentence."""


def check_options(options: argparse.Namespace) -> None:
    """What each argument says by itself, and what contradicts another."""
    if not NAME.fullmatch(options.name) or len(options.name) > LONGEST_NAME:
        raise Mistake(
            f"--name {options.name} must be small letters, digits and dashes, at most {LONGEST_NAME}, as pods' names."
        )
    if not NAMESPACE.fullmatch(options.namespace):
        raise Mistake(f"--namespace {options.namespace} must be small letters, digits and dashes, at most 63.")
    for flag, least in (("nodes", 1), ("ranks", 1), ("grace_seconds", 60), ("hugepages_mib", 0), ("storage_gib", 1)):
        if getattr(options, flag) < least:
            raise Mistake(f"--{flag} {getattr(options, flag)} must be at least {least}.")
    check_zones(options.zone.split(",") if options.zone else [])
    for flag in options.flag:
        if not FLAG.fullmatch(flag):
            raise Mistake(f"--flag {flag} is not a flag of mpzero train without --, such as logging_freq=1.")
    check_capacity(options)
    if options.topology and not options.queue:
        raise Mistake("--topology is Kueue's; give --queue with it.")


def check_zones(zones: list[str]) -> None:
    for zone in zones:
        if not ZONE.fullmatch(zone):
            raise Mistake(f"--zone {zone} is no zone of a region, such as us-west-2a; local zones cannot be used.")
    if len({zone[:-1] for zone in zones}) > 1:
        raise Mistake(f"--zone {','.join(zones)} lists zones of several regions; a cluster's nodes are in one.")


def check_capacity(options: argparse.Namespace) -> None:
    kinds = options.capacity.split(",")
    for kind in kinds:
        if kind not in CAPACITIES:
            raise Mistake(f"--capacity {kind} is none of {', '.join(CAPACITIES)}.")
    reserved = [kind for kind in kinds if kind in RESERVED_CAPACITIES]
    if reserved and len(kinds) > 1:
        raise Mistake(f"--capacity {options.capacity}: {reserved[0]} cannot be combined; give it alone.")
    if bool(reserved) != bool(options.reservation):
        raise Mistake("--capacity reserved or block and --reservation ID belong together; give both or neither.")
    if kinds == ["block"] and options.placement_group:
        raise Mistake(
            f"--placement_group {options.placement_group}: a capacity block has a place of its own, and EC2 finds no"
            " capacity where a group asks for another one; leave the group out."
        )
    for flag in ("placement_group", "reservation"):
        if "," in options.zone and getattr(options, flag):
            raise Mistake(f"--{flag} {getattr(options, flag)} lies in one zone; give one --zone.")


def check_hyperpod(options: argparse.Namespace, node: Node) -> None:
    if node.hyperpod and len(node.types) > 1:
        raise Mistake(f"--instance {options.instance}: HyperPod's nodes are there; give the type of those to train on.")
    for flag, default in (("capacity", "on-demand"), ("placement_group", ""), ("reservation", ""), ("cluster", "")):
        value = getattr(options, flag)
        if node.hyperpod and value != default:
            raise Mistake(
                f"--{flag} {value} is for nodes that Karpenter makes, and those of {node.name} are HyperPod's;"
                " set it in HyperPod's instance group."
            )


def check_hugepages(mib: int, node: Node) -> None:
    if node.memory_gib * 1024 - mib < LEAST_MEMORY * 1024:
        raise Mistake(
            f"--hugepages_mib {mib} leaves less than {LEAST_MEMORY} GiB of the {node.memory_gib} GiB"
            f" that a pod has on {node.name}; give fewer."
        )
    if mib % 2:
        raise Mistake(f"--hugepages_mib {mib} is no number of pages of 2 MiB; give an even number.")


def check_network(request: Request, no_efa: bool) -> None:
    if request.variables.get("NETWORK") != "efa":
        return
    if no_efa:
        raise Mistake("--set NETWORK=efa contradicts --no_efa, which gives the pods no EFA device; leave one out.")
    if request.nodes > 1 and request.efa_devices == 0:
        raise Mistake(f"--set NETWORK=efa: no pod on {request.node.name} gets an EFA device; leave it out.")


def read_variables(words: list[str]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise Mistake(f"--set {word} is not VARIABLE=VALUE.")
        check_variable("--set", name, variables)
        variables[name] = value
    return variables


def read_secrets(words: list[str], variables: dict[str, str]) -> dict[str, tuple[str, str]]:
    secrets: dict[str, tuple[str, str]] = {}
    for word in words:
        found = re.fullmatch(r"([A-Za-z_][A-Za-z0-9_]*)=([a-z0-9.-]+):([A-Za-z0-9._-]+)", word)
        if not found:
            raise Mistake(f"--secret {word} is not VARIABLE=SECRET:KEY, with the name of a Secret of the namespace.")
        name = found[1]
        check_variable("--secret", name, secrets)
        if name in variables:
            raise Mistake(f"--set {name} and --secret {name} give one variable two values; give one of both.")
        secrets[name] = (found[2], found[3])
    return secrets


def check_variable(flag: str, name: str, given: dict) -> None:
    if name in OWN:
        raise Mistake(
            f"{flag} {name} may contradict what is requested: --nodes, --instance, --ranks, --grace_seconds say it."
        )
    if name.startswith(RESERVED):
        raise Mistake(f"{flag} {name}: Kubeflow Trainer refuses a TrainJob that sets it, and container/launch does.")
    if name in given:
        raise Mistake(f"{flag} {name} is given twice; give it once.")
