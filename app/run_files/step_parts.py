"""The parts of a step, as the metrics file has them for rank 0."""

STEP_PARTS = {  # from below, where they are stacked
    "forward_seconds": "forward",
    "backward_seconds": "backward",
    "optimizer_seconds": "optimizer",
    "exposed_communication_seconds": "communication exposed",
    "data_seconds": "data",
}
