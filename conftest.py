"""Every test of the repository is watched for tasks and connections it leaves behind."""

pytest_plugins = ["tests.services.hygiene"]
