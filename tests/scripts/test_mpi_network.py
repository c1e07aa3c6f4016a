"""network.sh: the interface that MPI uses, from the kernel's tables of routes."""

import shlex

import pytest

TITLE = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"


def number(address: str) -> str:
    """As /proc/net/route has it on a little-endian machine."""
    return "".join(f"{int(part):02X}" for part in reversed(address.split(".")))


def table(*routes: tuple) -> str:
    """Routes (interface, network, gateway, metric, flags); "0.0.0.0/0" is the default."""
    lines = []
    for name, network, gateway, metric, flags in routes:
        base, length = network.split("/")
        bits = (1 << 32) - (1 << (32 - int(length)))
        mask = ".".join(str(bits >> shift & 255) for shift in (24, 16, 8, 0))
        words = (name, number(base), number(gateway), flags, "0", "0", str(metric), number(mask), "0", "0", "0")
        lines.append("\t".join(words) + "\n")
    return TITLE + "".join(lines)


NONE = "0.0.0.0"
DEFAULT = "0.0.0.0/0"
HYPERPOD = table(
    ("veth_def_agent", "169.254.0.0/16", NONE, 0, "0001"),
    ("ens32", DEFAULT, "10.1.0.1", 100, "0003"),
    ("ens32", "10.1.0.0/16", NONE, 100, "0001"),
    ("docker0", "172.17.0.0/16", NONE, 0, "0001"),
)
# The addresses of 32 interfaces are in one network.
P5 = table(
    *[(f"enp{card}s1", DEFAULT, "10.0.0.1", 512 + card, "0003") for card in reversed(range(32))],
    *[(f"enp{card}s1", "10.0.0.0/20", NONE, 512 + card, "0001") for card in reversed(range(32))],
)
POD = table(("eth0", DEFAULT, "169.254.1.1", 0, "0003"), ("eth0", "169.254.1.1/32", NONE, 0, "0005"))
TWO_NETWORKS = table(
    ("eno1", DEFAULT, "192.168.0.1", 100, "0003"),
    ("eno1", "192.168.0.0/24", NONE, 100, "0001"),
    ("eno2", "10.20.16.0/20", NONE, 101, "0001"),
    ("eno3", "10.20.20.0/24", NONE, 102, "0000"),  # down
    ("eno4", "10.20.21.0/24", NONE, 0, "0201"),  # refused
)
# A pod of EKS with IPv6; a VPN's two halves of the default route.
OUTWARD = table(("v4if0", DEFAULT, "169.254.172.1", 0, "0003"), ("v4if0", "169.254.172.1/32", NONE, 0, "0005"))
VPN = table(
    ("tun0", "0.0.0.0/1", "10.8.0.1", 0, "0003"),
    ("tun0", "128.0.0.0/1", "10.8.0.1", 0, "0003"),
    ("eth0", DEFAULT, "10.0.0.1", 100, "0003"),
    ("eth0", "10.0.0.0/20", NONE, 100, "0001"),
)
ZEROS = "0" * 32
IPV6 = (
    f"fd000009{'0' * 24} 40 {ZEROS} 00 {ZEROS} 00000100 00000001 00000000 00000001     eth1\n"
    f"{ZEROS} 00 {ZEROS} 00 fd00000900000000000000000000fe00 00000400 00000001 00000000 00000003     eth1\n"
    f"{ZEROS} 00 {ZEROS} 00 fd00000a00000000000000000000fe00 00000800 00000001 00000000 00000003     eth0\n"
    f"{ZEROS} 00 {ZEROS} 00 {ZEROS} ffffffff 00000001 00000000 00200200       lo\n"
)
REJECT = IPV6.splitlines(keepends=True)[-1]


@pytest.mark.parametrize(
    ("ipv4", "ipv6", "address", "route"),
    [
        (HYPERPOD, "", "", "ens32 10.1.0.0/16"),
        (HYPERPOD, "", "10.1.7.8", "ens32 10.1.0.0/16"),
        (HYPERPOD, IPV6, "10.2.7.8", "ens32 10.1.0.0/16"),
        (P5, "", "", "enp0s1 10.0.0.0/20"),
        (P5, "", "10.0.9.9", "enp0s1 10.0.0.0/20"),
        (POD, "", "10.3.4.5", "eth0 -"),
        (TWO_NETWORKS, "", "10.20.20.9", "eno2 10.20.16.0/20"),
        (TWO_NETWORKS, "", "10.20.21.9", "eno2 10.20.16.0/20"),
        (TWO_NETWORKS, "", "", "eno1 192.168.0.0/24"),
        (TITLE, IPV6, "", "eth1 ipv6"),
        (OUTWARD, IPV6, "", "eth1 ipv6"),
        (OUTWARD, "", "", "v4if0 -"),
        (VPN, "", "", "eth0 10.0.0.0/20"),
        ("", IPV6, "", "eth1 ipv6"),
        (TITLE, REJECT, "", None),
        (table(("eth0", "10.0.0.0/24", NONE, 0, "0001")), REJECT, "10.1.0.1", None),
        ("", "", "", None),
    ],
)
def test_the_route_to_an_address_chooses_the_interface(checkout, tmp_path, ipv4, ipv6, address, route):
    (tmp_path / "tables").mkdir()
    for name, text in (("route", ipv4), ("ipv6_route", ipv6)):
        if text:
            (tmp_path / "tables" / name).write_text(text)
    result = checkout.shell(f"route_to '{address}'", NETWORK_TABLES=str(tmp_path / "tables"))
    assert (result.returncode, result.stdout.strip()) == ((1, "") if route is None else (0, route)), result.stderr


def chosen(result) -> dict[str, str]:
    words = (line.split("=", 1) for line in result.stdout.splitlines() if "_if_" in line and "=" in line)
    return {name: value for name, value in words if "_MCA_" in name}


ALL = ["OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include"]


@pytest.mark.parametrize(
    ("routes", "network"),
    [
        (["n0 ens5 10.0.1.0/24", "n1 ens5 10.0.2.0/24"], "ens5"),
        (["n0 eth0 -", "n1 eth0 -"], "eth0"),
        (["n0 ens5 10.0.1.0/24", "n1 enp0s3 10.0.1.0/24"], "10.0.1.0/24"),
        (["n0 ens5 10.0.1.0/24", "n1 enp0s3 10.0.3.0/24"], "10.0.1.0/24,10.0.3.0/24"),
        (["n0 ens32 10.0.0.0/20", "n1 enp71s0 100.64.0.0/20"], "10.0.0.0/20,100.64.0.0/20"),
    ],
)
def test_every_launcher_gets_the_network_and_the_log_has_it_once(checkout, routes, network):
    result = checkout.shell(f"set_mpi_network {shlex.join(routes)}; env")
    assert result.returncode == 0, result.stderr
    assert chosen(result) == dict.fromkeys(ALL, network)
    assert len([line for line in result.stdout.splitlines() if line.startswith("mpzero: ") and network in line]) == 1


@pytest.mark.parametrize("given", ALL[1:] + [name.replace("include", "exclude") for name in ALL[1:]])
def test_the_users_choice_for_the_daemons_stays(checkout, given):
    result = checkout.shell("set_mpi_network 'n0 ens5 10.0.1.0/24' 'n1 ens5 10.0.1.0/24'; env", **{given: "eth7"})
    include = given.replace("exclude", "include")
    # Open MPI refuses to start with both.
    assert chosen(result) == {**{name: "ens5" for name in ALL if name != include}, given: "eth7"}, result.stderr


@pytest.mark.parametrize("kind", ["include", "exclude"])
@pytest.mark.parametrize("network", ["-", "ipv6", "192.168.0.0/24"])
def test_the_users_choice_for_the_ranks_is_one_for_all(checkout, kind, network):
    routes = f"'n0 eth0 {network}' 'n1 ens5 10.0.1.0/24'"
    names = [name.replace("include", kind) for name in ALL]
    result = checkout.shell(f"set_mpi_network {routes}; env", **{names[0]: "eth0,ens5"})
    assert result.returncode == 0 and chosen(result) == dict.fromkeys(names, "eth0,ens5"), result.stderr


@pytest.mark.parametrize("network", ["-", "ipv6"])
def test_interfaces_without_a_network_are_an_error_with_the_remedy(checkout, network):
    result = checkout.shell(f"set_mpi_network 'n0 eth0 {network}' 'n1 ens5 10.0.1.0/24'")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert all(word in result.stderr for word in ("n0 eth0", "n1 ens5", "OMPI_MCA_btl_tcp_if_include"))


def test_without_any_route_bridges_are_left_out(checkout):
    result = checkout.shell("judge_machines 2 $'n0 route none\\nn1 route none'; env")
    excludes = [name.replace("include", "exclude") for name in ALL[:2]]
    assert chosen(result) == dict.fromkeys(excludes, "lo,docker0,virbr0,veth_def_agent"), result.stderr


@pytest.mark.parametrize(("support", "status"), [("yes", 0), ("no", 2)])
def test_ipv6_alone_works_or_is_refused(checkout, support, status):
    checkout.program(checkout.bin / "ompi_info", f"#!/bin/bash\necho options:ipv6:{support}\n")
    result = checkout.shell("set_mpi_network 'n0 eth0 ipv6' 'n1 eth0 ipv6'; env")
    assert result.returncode == status and result.stderr.count("\n") == (status == 2), result.stderr
    assert chosen(result) == ({} if status else dict.fromkeys(ALL, "eth0"))


def test_a_loopback_address_is_none_of_a_node(checkout):
    checkout.program(
        checkout.bin / "getent",
        '#!/bin/bash\n[[ $2 != own ]] || echo "127.0.1.1 STREAM own"\n[[ $2 != far ]] || echo "10.0.0.7 STREAM far"\n',
    )
    assert checkout.shell("first_address own far").stdout == "10.0.0.7\n"
    assert checkout.shell("first_address own gone").returncode == 1
