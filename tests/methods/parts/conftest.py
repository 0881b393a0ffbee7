"""Tiny programs compile quickly."""

from tests.toys import compile_quickly

__all__ = ["compile_quickly"]
