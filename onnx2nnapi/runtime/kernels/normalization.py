"""Kernels of the normalizations."""

from __future__ import annotations
