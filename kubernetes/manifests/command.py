"""kubernetes/render: reads the arguments and writes the folder of a job."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from manifests import cluster, instances, job
from manifests.checks import check_hugepages, check_hyperpod, check_network, check_options, read_secrets, read_variables
from manifests.instances import Mistake
from manifests.request import Request


def main(arguments: list[str]) -> int:
    try:
        options = parse(arguments)
        request = request_of(options)
        write(Path(options.folder), request, base=options.base)
    except Mistake as error:
        print(f"kubernetes/render: error: {error}", file=sys.stderr)
        return 2
    for line in notices(options):
        print(f"kubernetes/render: {line}", file=sys.stderr)
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kubernetes/render", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("folder", help="output folder for the manifests")
    add("--name", required=True, help="name of the TrainJob")
    add("--instance", required=True, help="EC2 instance type of the nodes, or comma-separated types; ml.… on HyperPod")
    add("--nodes", type=int, required=True)
    add("--namespace", default="default")
    for flag, form, meaning in (
        ("--set", "VARIABLE=VALUE", "variable to set (docs/slurm.md)"),
        ("--secret", "VARIABLE=SECRET:KEY", "variable to set from a Secret, e.g. HF_TOKEN"),
        ("--flag", "FLAG[=VALUE]", "flag to pass to mpzero train, without --"),
    ):
        add(flag, action="append", default=[], metavar=form, help=f"{meaning}; repeatable")
    add("--ranks", type=int, default=2, help="ranks per node without GPUs")
    add("--grace_seconds", type=int, default=600, help="time for pods to save and exit")
    add("--hugepages_mib", type=int, default=0, help="memory per node in 2 MiB huge pages, for EFA, in MiB; 0: none")
    add("--capacity", default="on-demand", help="on-demand, spot, spot,on-demand, reserved or block")
    add("--no_efa", action="store_true", help="use TCP between nodes instead of EFA")
    add("--zone", default="", help="availability zones of the nodes, starting with the file system's zone")
    add("--cluster", default="", help="name of the EKS cluster")
    add("--placement_group", default="", help="name of a placement group with strategy cluster")
    add("--reservation", default="", help="id of a capacity reservation or block")
    add("--file_system", default="", help="id of an FSx for Lustre file system")
    add("--mount_name", default="", help="mount name of the file system")
    add("--storage_gib", type=int, default=1200)
    add("--queue", action="store_true", help="let Kueue admit the job")
    add("--topology", action="store_true", help="let Kueue place all pods in one zone; requires existing nodes")
    add("--base", default="", help="path of kubernetes/base in the kustomization")
    return parser.parse_args(arguments)


def request_of(options: argparse.Namespace) -> Request:
    check_options(options)
    node = instances.find(options.instance)
    check_hyperpod(options, node)
    check_hugepages(options.hugepages_mib, node)
    variables = read_variables(options.set)
    secrets = read_secrets(options.secret, variables)
    # Set NETWORK=efa explicitly, because a run would silently be slower without EFA.
    if options.no_efa and options.nodes > 1:
        variables.setdefault("NETWORK", "socket")
    elif options.nodes > 1 and node.efa and node.gpus:
        variables.setdefault("NETWORK", "efa")
    options_as_given = {field.name: getattr(options, field.name, None) for field in fields(Request)}
    changed = {
        "node": node,
        "variables": variables,
        "secrets": secrets,
        "flags": tuple(f"--{flag}" for flag in options.flag),
        "capacity": tuple(options.capacity.split(",")),
        "zones": tuple((options.zone or "us-west-2a").split(",")),
        "cluster": options.cluster or "my-cluster",
        "file_system": options.file_system or "fs-0123456789abcdef0",
        "mount_name": options.mount_name or "fsx",
        # CPU ranks communicate with MPI over TCP.
        "efa": not options.no_efa and node.gpus > 0,
    }
    request = Request(**{**options_as_given, **changed})
    check_network(request, options.no_efa)
    return request


def notices(options: argparse.Namespace) -> Iterable[str]:
    hyperpod = instances.find(options.instance).hyperpod
    for flag in ("cluster", "zone", "file_system", "mount_name"):
        if not getattr(options, flag) and not (flag == "cluster" and hyperpod):
            yield f"--{flag} is not set: the manifests contain an example value; do not apply them."
    if options.capacity == "reserved" and options.placement_group:
        yield (
            f"--placement_group {options.placement_group}: {options.reservation} must be an on-demand reservation"
            " in that group; for a capacity block, pass --capacity block."
        )


def files(request: Request) -> dict[str, list[dict[str, Any]]]:
    """Returns the manifests by file name."""
    made = {
        "job.yaml": [job.train_job(request), job.disruption_budget(request)],
        "storage.yaml": cluster.storage(request),
    }
    if not request.node.hyperpod:
        made["nodes.yaml"] = [cluster.node_pool(request), cluster.node_class(request)]
    if request.queue:
        made["queue.yaml"] = cluster.queue(request)
    return made


def write(folder: Path, request: Request, base: str = "") -> None:
    made = files(request)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": ([base] if base else []) + sorted(made),
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, manifests in {**made, "kustomization.yaml": [kustomization]}.items():
            (folder / name).write_text(text_of(manifests, request), encoding="utf-8")
        for name in {"queue.yaml", "nodes.yaml"} - made.keys():
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise Mistake(f"{error.filename} cannot be written ({error.strerror}); choose a different folder.") from error


class Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_str(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Plain.add_representer(str, Plain.represent_str)


def text_of(manifests: list[dict[str, Any]], request: Request) -> str:
    nodes = f"{request.nodes} × {request.node.name}"
    head = f"# Generated by kubernetes/render for {nodes}; do not edit. To change it, run kubernetes/render again.\n"
    # One line for each object without nested objects.
    style = {"sort_keys": False, "allow_unicode": True, "width": 120, "default_flow_style": None}
    return head + yaml.dump_all(manifests, Dumper=Plain, **style)
