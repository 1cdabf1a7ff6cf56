"""The passes, from the frontend's graph to the one that lower emits, in order and with the reason for each place.

A pass is ``def verb_noun(graph, options) -> bool`` (True = changed): idempotent, deterministic, without globals. It
keeps the interface, and the Origin of every operation.
"""

from __future__ import annotations

from collections.abc import Callable

from onnx2nnapi.ir.graph import Graph
from onnx2nnapi.options import Options
from onnx2nnapi.passes.capture_constants import capture_constants
from onnx2nnapi.passes.carry_types import carry_types
from onnx2nnapi.passes.check_dialect import check_levels
from onnx2nnapi.passes.eliminate_common import eliminate_common
from onnx2nnapi.passes.eliminate_dead import eliminate_dead
from onnx2nnapi.passes.fold_affine import fold_affine
from onnx2nnapi.passes.fold_bias import fold_bias
from onnx2nnapi.passes.fold_constants import fold_constants
from onnx2nnapi.passes.fold_pad import fold_pad
from onnx2nnapi.passes.fuse_activations import fuse_activations
from onnx2nnapi.passes.inline_control import inline_control
from onnx2nnapi.passes.layout import layout
from onnx2nnapi.passes.legalize.driver import legalize
from onnx2nnapi.passes.recognize_clip import recognize_clip
from onnx2nnapi.passes.recognize_gelu import recognize_gelu
from onnx2nnapi.passes.recognize_hard_swish import recognize_hard_swish
from onnx2nnapi.passes.recognize_normalizations import recognize_normalizations
from onnx2nnapi.passes.recognize_pack import recognize_pack
from onnx2nnapi.passes.recognize_pools import recognize_pools
from onnx2nnapi.passes.recognize_shuffle import recognize_shuffle
from onnx2nnapi.passes.remove_identities import remove_identities
from onnx2nnapi.passes.settle_interface import settle_interface
from onnx2nnapi.passes.settle_submodels import settle_submodels

__all__ = ["PIPELINE", "Pass"]

Pass = Callable[[Graph, Options], bool]

PIPELINE: tuple[Pass, ...] = (
    capture_constants,  # first: every graph has its constants where the passes and rules look for them
    fold_constants,  # then: what the passes and rules below want constant is constant then
    inline_control,  # after folding, which tells conditions and trips; before the rest, which looks at what runs
    remove_identities,  # before the passes that look at neighbours, which no-ops keep apart
    recognize_gelu,  # before legalize, which has fewer operations for a Gelu than for its parts
    recognize_clip,  # before fold_pad, which asks whether numbers are clamped at 0
    recognize_hard_swish,  # after recognize_clip, which gives clamps one form; before fold_affine takes its scale
    recognize_normalizations,  # after recognize_clip too; before legalize, which has fewer operations for these
    fold_pad,
    fold_affine,  # before legalize, which repacks the weights
    eliminate_dead,  # before legalize: what nobody needs is not refused
    legalize,  # the dialect changes here; everything before speaks ONNX, everything after NNAPI
    fold_constants,  # what the rules computed from constants
    eliminate_common,  # before layout: several readers of one tensor share one bracketing transpose
    recognize_shuffle,  # before layout, which would move the transpose away from its reshapes
    recognize_pools,  # before layout, which would have to move squares and roots with the transposes
    layout,  # before fusion and the level check: it removes most of what legalize bracketed operations with
    recognize_pack,  # after layout, which joins and removes reshapes
    settle_interface,  # after layout has joined reshapes, before the check: NNAPI reshapes from ranks up to 4 only
    eliminate_dead,  # before the check: what nobody needs is not refused
    carry_types,  # after layout, whose moves are of any type; before the check, which knows what NNAPI has
    fold_bias,  # after layout, when the last dimension is that of the bias
    check_levels,  # after layout, which removes what the target may lack
    fuse_activations,  # after layout: no transpose stands between an operation and its activation any more
    eliminate_common,  # layout and fusion make operations equal
    eliminate_dead,  # what the passes above left without readers
    settle_submodels,  # last: the passes above may make an output of a sub-model constant, or two of them one
)
