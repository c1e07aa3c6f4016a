#pragma once

#include <string>
#include <vector>

#include "app/top/node_metrics.hpp"
#include "app/top/run_reader.hpp"

namespace mpzero {

// "▁▃█": the values as bars, the mean of neighbours where there are more than `width`.
std::string sparkline(const std::vector<double>& values, int width);

// The terminal view of a run: at most `rows` lines of at most `width` columns. `now`: seconds since 1970. Ranks and
// nodes that do not fit are counted.
std::vector<std::string> run_frame(const RunView& run, const std::vector<NodeView>& nodes, double now, int width,
                                   int rows);

}  // namespace mpzero
