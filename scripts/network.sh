# shellcheck shell=bash
# Selects MPI's network interface between nodes: the interface with the route to a node's address in Slurm or in the hostfile. By default,
# Open MPI uses all interfaces, including interfaces with the same address on each node (bridges, HyperPod's veth_def_agent), through which
# a rank would connect to its own node and wait forever.

# first_address HOST...: the first IPv4 address of these hosts that is not a loopback address (to which Debian's /etc/hosts maps the host's
# own name). Fails if no address is found.
first_address() {
  local host address
  for host in "$@"; do
    while read -r address _; do
      if [[ $address =~ ^[0-9]{1,3}(\.[0-9]{1,3}){3}$ && $address != 127.* ]]; then
        printf '%s\n' "$address"
        return
      fi
    done < <(getent ahostsv4 "$host" 2>/dev/null)
  done
  return 1
}

# slurm_address: Slurm's address of a node of this job.
slurm_address() {
  local -a addresses
  mapfile -t addresses < <(ask_slurm scontrol show node "$SLURM_JOB_NODELIST" 2>/dev/null | sed -n 's/.*[[:space:]]NodeAddr=\([^[:space:]]*\).*/\1/p' | head -n 4)
  first_address "${addresses[@]}"
}

# route_to ADDRESS: "INTERFACE NETWORK" of this host's route to an IPv4 address (empty: the default route). NETWORK: the network of the
# interface, e.g. 10.0.0.0/20, or "-" if unknown, as in an EKS pod with a /32 address. "INTERFACE ipv6" if the only default route is IPv6.
# Fails without a route. (The container image does not contain `ip`.)
route_to() {
  local tables=${NETWORK_TABLES:-/proc/net} target=0 part name destination gateway flags metric mask length best=-1 least=0 found="" network=- via="" ipv6
  # The kernel prints addresses as little-endian numbers.
  if [[ -n $1 ]]; then
    for part in 3 2 1 0; do target=$((target << 8 | 10#$(cut -d. -f$((part + 1)) <<<"$1"))); done
  fi
  while read -r name destination gateway flags _ _ metric mask _; do
    [[ $destination$gateway$mask =~ ^[0-9A-F]{24}$ && $flags =~ ^[0-9A-F]{4}$ && $metric =~ ^[0-9]{1,10}$ ]] || continue
    # The route is up and not a reject route.
    (((16#$flags & 0x201) == 1 && (target & 16#$mask) == 16#$destination)) || continue
    # Without an address, use the default route.
    [[ -n $1 || $mask == 00000000 ]] || continue
    length=$(prefix_length "$mask")
    if ((length > best || (length == best && 10#$metric < least))); then
      best=$length least=$((10#$metric)) found=$name via=$gateway
    fi
  done < <(cat "$tables/route" 2>/dev/null)
  # On EKS with IPv6, pods have an IPv4 address only for egress, with a link-local gateway (169.254).
  if [[ -z $found || (-z $1 && $via == *FEA9) ]]; then
    # Destination and prefix length 0; the kernel's own reject route is on lo.
    ipv6=$(awk '$1 ~ /^0+$/ && $2 == "00" && $10 != "lo" { print $6, $10 }' "$tables/ipv6_route" 2>/dev/null | sort | awk 'NR == 1 { print $2 }') || true
    [[ -n $found || -n $ipv6 ]] || return 1
    if [[ -n $ipv6 ]]; then
      printf '%s ipv6\n' "$ipv6"
      return
    fi
  fi
  while read -r name destination gateway flags _ _ metric mask _; do
    if [[ $name == "$found" && $gateway == 00000000 && $destination =~ ^[0-9A-F]{8}$ && $mask =~ ^[0-9A-F]{1,8}$ ]]; then
      length=$(prefix_length "$mask")
      # Skip host routes and the link-local network.
      if ((length > 0 && length < 32 && (16#$destination & 0xffff) != 0xfea9)); then
        network=$((16#${destination:6:2})).$((16#${destination:4:2})).$((16#${destination:2:2})).$((16#${destination:0:2}))/$length
        break
      fi
    fi
  done < <(cat "$tables/route" 2>/dev/null)
  printf '%s %s\n' "$found" "$network"
}

# prefix_length MASK: e.g. 20 for 00F0FFFF.
prefix_length() {
  local bits=$((16#$1)) count=0
  for (( ; bits > 0; bits >>= 1)); do count=$((count + (bits & 1))); done
  echo "$count"
}

# mpi_network LINE...: prints MPI's interfaces or networks for nodes with these routes, each "NODE INTERFACE NETWORK": the interface if its
# name is the same on all nodes, because several interfaces of a node may share a network; else all networks.
mpi_network() {
  local line name network common="" same=true
  local -a networks=()
  for line in "$@"; do
    read -r _ name network <<<"$line"
    [[ -n $common ]] || common=$name
    [[ $name == "$common" ]] || same=false
    [[ $network != */* ]] || networks+=("$network")
  done
  if [[ $same == true ]]; then
    printf '%s\n' "$common"
  elif ((${#networks[@]} == $#)); then
    printf '%s\n' "${networks[@]}" | sort --unique | paste --serial --delimiters=,
  else
    die "The nodes' network interfaces have different names, and some have no IPv4 subnet ($(join_lines "$@")); set OMPI_MCA_btl_tcp_if_include to MPI's interfaces or networks."
  fi
}

join_lines() { printf '%s\n' "$@" | paste --serial --delimiters=, | sed 's/,/, /g'; }

# chosen_by_user PREFIX: succeeds if the user has set the variables with this prefix.
chosen_by_user() {
  local include=${1}_include exclude=${1}_exclude
  [[ -n ${!include:-}${!exclude:-} ]]
}

# Prefixes for the ranks of Open MPI 4 and 5, the daemons of Open MPI 4, and the daemons of Open MPI 5.
readonly MPZERO_MPI_NETWORKS=(OMPI_MCA_btl_tcp_if OMPI_MCA_oob_tcp_if PRTE_MCA_prte_if)

# set_mpi_network LINE...: sets the network of MPI and mpirun for these nodes, as in mpi_network. The user's choice takes precedence, and a
# choice for the ranks also applies to the daemons.
set_mpi_network() {
  local network prefix name words=include
  for name in include exclude; do
    prefix=${MPZERO_MPI_NETWORKS[0]}_$name
    [[ -z ${!prefix:-} ]] || network=${!prefix} words=$name
  done
  if [[ -z ${network:-} ]]; then
    network=$(mpi_network "$@") || exit
    if [[ " $* " =~ \ ipv6\  && $(ompi_info --parsable 2>/dev/null) == *options:ipv6:no* ]]; then
      die "These nodes have only IPv6 addresses, which $(command -v mpirun) does not support; assign IPv4 addresses, or build with an Open MPI that was configured with --enable-ipv6."
    fi
    say "MPI uses the network $network between nodes; OMPI_MCA_btl_tcp_if_include overrides it."
  fi
  for prefix in "${MPZERO_MPI_NETWORKS[@]}"; do
    chosen_by_user "$prefix" || mpi_default "${prefix}_$words" "$network"
  done
}

# avoid_bridges: without a reported network, lets MPI choose, but excludes bridges with the same address on every node.
avoid_bridges() {
  local prefix
  warn "the nodes did not report their networks, so MPI selects a network itself."
  for prefix in "${MPZERO_MPI_NETWORKS[@]:0:2}"; do
    chosen_by_user "$prefix" || mpi_default "${prefix}_exclude" lo,docker0,virbr0,veth_def_agent
  done
}
