"""A topology-aware Kubernetes scheduler for AWS Inferentia and Trainium devices."""

__version__ = "0.1.0"
