"""Models to try the package on without a download."""
from .gpt import GPT, GPTConfig

__all__ = ["GPT", "GPTConfig"]
