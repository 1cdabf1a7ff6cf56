"""Operators that no NNAPI operation expresses, and why."""

from __future__ import annotations

__all__ = ["REASONS"]

__all__ = ["REASONS"]

_CUT = "cut the model before it with --cut-outputs, and compute it outside"
_OPEN = "the size of its result depends on data, and NNAPI needs every size when the model is converted"
_RANDOM = "random numbers, which NNAPI draws from a distribution of its own only"
_PLACES = "NNAPI has no operation that writes to computed places"

# operator -> why, and the way out
REASONS: dict[str, tuple[str, str]] = {
    "Attention": (
        "it is of a form without a definition, or gives its masked scores out, which hold infinities that NNAPI lacks",
        "export the model without qk_matmul_output",
    ),
    "Bernoulli": (_RANDOM, _CUT),
    "Compress": (_OPEN, _CUT),
    "DeformConv": ("its kernel reads from computed places", _CUT),
    "Det": ("NNAPI computes no determinants", _CUT),
    "ImageDecoder": ("NNAPI decodes no image files", _CUT),
    "MaxRoiPool": ("it rounds regions to whole pixels, and ROI_POOLING does not", "use RoiAlign"),
    "MaxUnpool": (_PLACES, _CUT),
    "Multinomial": (_RANDOM, _CUT),
    "NonMaxSuppression": (_OPEN, f"export the model without its post-processing, or {_CUT}"),
    "NonZero": (_OPEN, _CUT),
    "RandomNormal": (_RANDOM, _CUT),
    "RandomNormalLike": (_RANDOM, _CUT),
    "RandomUniform": (_RANDOM, _CUT),
    "RandomUniformLike": (_RANDOM, _CUT),
    "Range": (_OPEN, "freeze what its bounds are computed from with --set"),
    "Unique": (_OPEN, _CUT),
}
