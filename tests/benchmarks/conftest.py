"""What needs PyTorch is collected where it is installed: nothing is skipped where it is not."""

from importlib.util import find_spec

collect_ignore = [] if find_spec("torch") else ["test_torch_twins.py"]
