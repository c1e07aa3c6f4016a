"""Generates the manifests of a training job on Kubernetes from its instance type and number of nodes."""
