#include <cmath>
#include <limits>

#include "app/exporter/families.hpp"
#include "tests/catch.hpp"

using namespace mpzero;

// The text is that of https://prometheus.io/docs/instrumenting/exposition_formats.

TEST_CASE("a metric with several label sets has one header") {
  Families families(MetricLabels{{"run_id", "7c"}});
  families.gauge("mpzero_loss", "Mean loss.", 2.5);
  families.counter("mpzero_bytes_total", "Bytes.", 3, {{"device", "eth0"}});
  families.gauge("mpzero_loss", "Mean loss.", 1, {{"rank", "1"}});
  families.counter("mpzero_bytes_total", "Bytes.", 4e18, {{"device", "eth1"}});
  CHECK(families.text() ==
        "# HELP mpzero_loss Mean loss.\n"
        "# TYPE mpzero_loss gauge\n"
        "mpzero_loss{run_id=\"7c\"} 2.5\n"
        "mpzero_loss{run_id=\"7c\",rank=\"1\"} 1\n"
        "# HELP mpzero_bytes_total Bytes.\n"
        "# TYPE mpzero_bytes_total counter\n"
        "mpzero_bytes_total{run_id=\"7c\",device=\"eth0\"} 3\n"
        "mpzero_bytes_total{run_id=\"7c\",device=\"eth1\"} 4e+18\n");
}

TEST_CASE("labels and numbers can be parsed back") {
  Families families(MetricLabels{});
  families.gauge("a", "b", std::nan(""), {{"folder", "a\\b \"c\"\nd"}});
  families.gauge("a", "b", std::numeric_limits<double>::infinity());
  families.gauge("a", "b", 0.1 + 0.2);
  const std::string text = families.text();
  CHECK(text.find("a{folder=\"a\\\\b \\\"c\\\"\\nd\"} NaN\n") != std::string::npos);
  CHECK(text.find("a +Inf\n") != std::string::npos);
  CHECK(text.find("a 0.30000000000000004\n") != std::string::npos);
}

TEST_CASE("the buckets of a histogram are cumulative") {
  DurationHistogram durations;
  for (const double seconds : {0.0005, 0.001, 0.0011, 100.0, 1000.0}) durations.add(seconds);
  CHECK(durations.count() == 5);
  Families families(MetricLabels{});
  families.histogram("t", "Time.", durations, {{"part", "x"}});
  const std::string text = families.text();
  CHECK(text.find("# TYPE t histogram\nt_bucket{part=\"x\",le=\"0.001\"} 2\nt_bucket{part=\"x\",le=\"0.0025\"} 3\n") !=
        std::string::npos);
  CHECK(text.find(
            "t_bucket{part=\"x\",le=\"60\"} 3\nt_bucket{part=\"x\",le=\"120\"} 4\nt_bucket{part=\"x\",le=\"+Inf\"} 5\n"
            "t_sum{part=\"x\"} 1100.0026\nt_count{part=\"x\"} 5\n") != std::string::npos);
}

TEST_CASE("a label that is not UTF-8 still gives a valid UTF-8 page") {
  Families families(MetricLabels{{"folder", "/fsx/\xff\xc3\xa9\xc3"}});
  families.gauge("mpzero_up", "Help.", 1);
  CHECK_THAT(families.text(), Catch::Contains("{folder=\"/fsx/\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd\"} 1\n"));
}
