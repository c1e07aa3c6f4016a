#pragma once

#include "app/ec2/ec2_watch.hpp"
#include "app/exporter/families.hpp"

namespace mpzero {

// EC2's notices about this node's instance.
void collect_ec2(const Ec2Watch& watch, Families& to);

}  // namespace mpzero
