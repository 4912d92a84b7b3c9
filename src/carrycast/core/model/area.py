"""The ground that nodes move on."""

from typing import Annotated

import msgspec
from msgspec import Meta

Extent = Annotated[float, Meta(gt=0, le=1e9, description="meters")]


class Area(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The rectangle from (0, 0) to (width_m, height_m) in which nodes move."""

    width_m: Extent
    height_m: Extent
