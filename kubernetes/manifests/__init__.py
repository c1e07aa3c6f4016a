"""The manifests of a training job on Kubernetes, from its instance type and its number of nodes."""
