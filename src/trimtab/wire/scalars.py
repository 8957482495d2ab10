"""Java's numbers: one outside its type's range is refused when it is decoded."""

from typing import Annotated

import msgspec

I32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
I64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
F64 = Annotated[float, msgspec.Meta(ge=-1.7976931348623157e308, le=1.7976931348623157e308)]
"""A double. NaN and the infinities are refused: Java writes them as null, which is read as "not given"."""
